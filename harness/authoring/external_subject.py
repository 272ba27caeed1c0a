"""Subjects that work outside the trial's process: commands, and runs that have ended."""

from __future__ import annotations

from abc import ABC, abstractmethod

from harness.authoring.reports import Report
from harness.base.strictjson import JsonObject

__all__ = ["ExternalSubject"]


class ExternalSubject(ABC):
    """A subject that works outside the trial's process. The adapters of `harness.tools.trainer` are such subjects.

    What ran is read from its output, since there is no process to ask: see `Trial.resolve`.
    """

    report: Report = staticmethod(lambda message: None)
    """Sends a message of the trial; set by the trial that builds the subject."""

    @abstractmethod
    def ran(self) -> JsonObject:
        """What ran, as far as the subject reports it: `device`, `dtype`, `backend`, `steps`."""

    def unheard(self) -> str:
        """Why no part of its output was understood; empty if a part was. Reports show this reason first."""
        return ""
