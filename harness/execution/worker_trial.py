"""Runs a trial in its process: builds the subject, runs the falsifier, and raises the first fault."""

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
    """Builds the subject, runs the falsifier, and raises the first fault or unobserved measurement.

    Falsifiers get the `Trial`. This class has the operations that only the worker may use.
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
        artifacts: the folder for small files that are copied into the bundle.
        declared: the measurements that the contract declares.
        report: sends one message of the trial.
        new_search: creates a search over cases; without it the trial cannot search.
        """
        self._setting = setting
        self._report = report
        self._artifacts = artifacts
        self._recorder = Recorder(declared, report)
        self._new_search = new_search
        self.is_in_process = True
        """Whether the subject runs in this process, so that the memory counts of its allocator apply."""

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
        """Run a falsifier on a subject.

        Raises:
            SubjectFault, FalsifierFault, NotMeasured, ValueError: the first fault, even if the falsifier caught it.
            NotObserved: there was no fault, but no part of the subject's output could be parsed.
        """
        try:
            falsify(self.build(subject))
        finally:
            self._recorder.raise_fault()
        self._recorder.raise_unheard()
