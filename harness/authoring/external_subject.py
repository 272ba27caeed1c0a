"""Subjects outside the trial's process: commands, and recordings of finished runs."""

from __future__ import annotations

from abc import ABC, abstractmethod

from harness.authoring.reports import Report
from harness.base.strictjson import JsonObject

__all__ = ["ExternalSubject"]


class ExternalSubject(ABC):
    """A subject outside the trial's process, such as the adapters of `harness.tools.trainer`.

    `Trial.resolve` takes what ran from `ran`, because the process cannot be queried.
    """

    report: Report = staticmethod(lambda message: None)
    """Sends a message of the trial; set by the trial that builds the subject."""

    @abstractmethod
    def ran(self) -> JsonObject:
        """Return what the subject reports of `device`, `dtype`, `backend` and `steps`."""

    def unheard(self) -> str:
        """Why no part of the output could be parsed; empty if a part could. Reports show this reason first."""
        return ""
