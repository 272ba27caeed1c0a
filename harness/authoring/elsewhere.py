"""Subjects that work outside the trial's process: commands, and runs that have ended."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from harness.authoring.faults import NotShown

if TYPE_CHECKING:
    from harness.authoring.trial import Trial

__all__ = ["Elsewhere", "elsewhere", "not_shown"]


class Elsewhere(ABC):
    """A subject that works outside the trial's process. The adapters of `harness.external` are such subjects.

    What ran is read from its output, since there is no process to ask: see `Trial.resolve`.
    """

    @abstractmethod
    def ran(self) -> Mapping[str, Any]:
        """What ran, as far as the subject tells: `device`, `dtype`, `backend`, `steps`."""


Falsifier = Callable[["Trial[Any]"], None]


def elsewhere(examine: Falsifier) -> Callable[[Falsifier], Falsifier]:
    """Decorator of a falsifier that works inside the subject's process.

        @elsewhere(look_at_files)
        def falsify(trial: Trial[Format]) -> None: ...

    Args:
        examine: measures what can be seen of a subject outside the trial's process, in the place of the falsifier.
    """

    def decorated(falsify: Falsifier) -> Falsifier:
        @functools.wraps(falsify)
        def chosen(trial: Trial[Any]) -> None:
            (examine if isinstance(trial.subject, Elsewhere) else falsify)(trial)

        return chosen

    return decorated


def not_shown(reason: str) -> Falsifier:
    """For `elsewhere`: nothing of the claim can be seen from outside, for this reason; the subject is not run."""

    def refuse(trial: Trial[Any]) -> NoReturn:
        raise NotShown(reason)

    return refuse
