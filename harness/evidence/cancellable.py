"""Judging that can be ended: what is costly is judged in a fork of this process.

    judgment = judged(contract, observation, ended=lambda: interruption.requested)

A rule runs inside a library that neither an exception nor a signal handler of Python can interrupt. The cost of a
judgment is bounded, but a user who presses Ctrl-C does not wait for seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from harness.contract import Contract
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Observation
from harness.machine.limited_process import Limits, Stopped, decoded, isolated_all

__all__ = ["Unjudged", "judged"]


class Unjudged(Exception):
    """The judging was ended, or its process died; the text says which."""


def judged(contract: Contract, observation: Observation, ended: Callable[[], bool] = lambda: False) -> Judgment:
    """Judge an observation as `judge` does.

    Args:
        ended: called ten times a second; if it returns true, the judging ends. A KeyboardInterrupt ends it too.

    Raises:
        Unjudged: there is no judgment.
    """
    quick = judge(contract, observation, quick=True)
    if quick.is_whole:
        return quick

    def work() -> bytes:
        return json.dumps(judge(contract, observation).to_json()).encode("ascii")

    (answer,) = isolated_all([work], Limits(), 1, ended)
    if isinstance(answer, Stopped):
        raise Unjudged(str(answer))
    return Judgment.from_json(decoded(answer))
