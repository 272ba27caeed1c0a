"""Which function examines a subject that works outside the trial's process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from harness.authoring.elsewhere import Elsewhere
from harness.authoring.faults import NotShown
from harness.authoring.trial import Trial

__all__ = ["elsewhere", "not_shown"]

Falsifier = Callable[[Trial[Any]], None]


def elsewhere(examine: Falsifier) -> Callable[[Falsifier], Falsifier]:
    """Decorator of a falsifier that works inside the subject's process.

        @elsewhere(look_at_files)
        def falsify(trial: Trial[Format]) -> None: ...

    Args:
        examine: runs instead of the falsifier, and measures what a subject outside the trial's process shows.
    """

    def decorated(falsify: Falsifier) -> Falsifier:
        @functools.wraps(falsify)
        def chosen(trial: Trial[Any]) -> None:
            (examine if isinstance(trial.subject, Elsewhere) else falsify)(trial)

        return chosen

    return decorated


def not_shown(reason: str) -> Falsifier:
    """For `elsewhere`: nothing of the claim can be seen from outside. The text says why. The subject does not run."""

    def refuse(trial: Trial[Any]) -> NoReturn:
        raise NotShown(reason)

    return refuse
