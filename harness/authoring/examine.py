"""Falsifiers for subjects outside the trial's process."""

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
    """Decorate a falsifier with a second one for external subjects.

        @for_external(examine_files)
        def falsify(trial: Trial[Format]) -> None: ...

    Args:
        examine: the falsifier that runs if the subject is an `ExternalSubject`.
    """

    def decorated(falsify: Falsifier) -> Falsifier:
        @functools.wraps(falsify)
        def chosen(trial: Trial[Any]) -> None:
            (examine if isinstance(trial.subject, ExternalSubject) else falsify)(trial)

        return chosen

    return decorated


def not_observable(reason: str) -> Falsifier:
    """Return a falsifier for `for_external` that raises `NotObserved(reason)` and does not run the subject."""

    def refuse(trial: Trial[Any]) -> NoReturn:
        raise NotObserved(reason)

    return refuse
