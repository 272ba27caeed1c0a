"""Which function examines a subject that works outside the trial's process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from harness.authoring.external_subject import ExternalSubject
from harness.authoring.faults import NotObserved
from harness.authoring.trial import Trial

__all__ = ["for_external", "not_observable"]

Falsifier = Callable[[Trial[Any]], None]


def for_external(examine: Falsifier) -> Callable[[Falsifier], Falsifier]:
    """Decorator of a falsifier that works inside the subject's process.

        @for_external(look_at_files)
        def falsify(trial: Trial[Format]) -> None: ...

    Args:
        examine: runs instead of the falsifier, and measures what a subject outside the trial's process shows.
    """

    def decorated(falsify: Falsifier) -> Falsifier:
        @functools.wraps(falsify)
        def chosen(trial: Trial[Any]) -> None:
            (examine if isinstance(trial.subject, ExternalSubject) else falsify)(trial)

        return chosen

    return decorated


def not_observable(reason: str) -> Falsifier:
    """For `for_external`: nothing of the claim can be seen from outside, for this reason. The subject does not run."""

    def refuse(trial: Trial[Any]) -> NoReturn:
        raise NotObserved(reason)

    return refuse
