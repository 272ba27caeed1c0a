"""One trial from its subject to its end, in the process that runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.authoring.external_subject import ExternalSubject
from harness.authoring.recorder import Recorder
from harness.authoring.reports import Logged, Report
from harness.authoring.setting import Setting
from harness.authoring.trial import NewSearch, Trial
from harness.execution.news import tensors_of

__all__ = ["WorkerTrial"]


class WorkerTrial:
    """Builds the subject, runs the falsifier, and ends with the first fault or the first measurement that is not shown.

    Falsifiers get the `Trial`. This class has what only the worker may do.
    """

    def __init__(
        self,
        setting: Setting,
        artifacts: Path,
        declared: frozenset[str],
        report: Report,
        new_search: NewSearch | None = None,
    ) -> None:
        """Args:
        artifacts: the folder for small files that go into the bundle.
        declared: the measurements that the contract declares.
        report: sends one message of the trial.
        new_search: starts a search over cases; without it the trial cannot search.
        """
        self._setting = setting
        self._report = report
        self._artifacts = artifacts
        self._recorder = Recorder(declared, report)
        self._new_search = new_search
        self.is_in_process = True
        """Whether the subject works in this process, so that this process's allocator counts its memory."""

    def build(self, subject: Callable[[Setting], Any]) -> Trial[Any]:
        """Build the subject. Any exception is the subject's fault."""
        self._report(Logged("builds the subject"))
        with self._recorder.subject_fault():
            built = subject(self._setting)
        self._report(Logged("; ".join([f"built {type(built).__name__}", *tensors_of(built)])))
        if isinstance(built, ExternalSubject):
            self.is_in_process = False
            built.report = self._report
        return Trial(built, self._setting, self._artifacts, self._recorder, self._new_search)

    def run(self, falsify: Callable[[Trial[Any]], None], subject: Callable[[Setting], Any]) -> None:
        """Let a falsifier examine a subject.

        Raises:
            SubjectFault, FalsifierFault, NotMeasured, ValueError: the first fault, also if the falsifier caught it.
            NotObserved: the falsifier ended without a fault, but nothing of the subject's output was understood.
        """
        try:
            falsify(self.build(subject))
        finally:
            self._recorder.raise_fault()
        self._recorder.raise_unheard()
