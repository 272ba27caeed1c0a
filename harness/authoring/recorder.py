"""The state of a running trial: the current phase and the first fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from harness.authoring.faults import (
    NOT_THE_SUBJECTS,
    FalsifierFault,
    NotObserved,
    SubjectFault,
    UndeclaredMeasurement,
)
from harness.authoring.reports import Entered, Report, Unseen
from harness.base.shortening import described
from harness.base.vocabulary import Phase

__all__ = ["Recorder"]


class Recorder:
    """Sends the messages of one trial and keeps its first fault."""

    def __init__(self, declared: frozenset[str], report: Report) -> None:
        """Args:
        declared: the measurements that the contract declares.
        report: sends one message.
        """
        self._declared = declared
        self._phase = Phase.FALSIFIER
        self._blames_nobody = False
        self.report = report
        self.fault: Exception | None = None
        """The first fault, even if the falsifier or the subject catches it."""
        self.unheard: NotObserved | None = None
        """Why no part of the subject's output could be parsed."""

    def require_declared(self, names: Iterable[str]) -> None:
        """Raise `UndeclaredMeasurement` if the contract does not declare one of these measurements."""
        for name in names:
            if name not in self._declared:
                known = ", ".join(sorted(self._declared))
                raise UndeclaredMeasurement(f"{name!r} is not declared in the contract; its observation has {known}")

    def hide(self, names: Iterable[str], reason: NotObserved) -> None:
        """Report why these measurements are missing."""
        if unseen := dict.fromkeys(names, str(reason)):
            self.report(Unseen(unseen))

    def enter(self, phase: Phase) -> Phase:
        """Report whose code runs from now on, and return the phase before."""
        before, self._phase = self._phase, phase
        if not self._blames_nobody:
            try:
                self.report(Entered(phase))
            except Exception as error:  # a defect of the harness, even if the subject is on the call stack
                raise self._first(FalsifierFault(described(error)), error) from error
        return before

    @contextmanager
    def blaming_nobody(self) -> Iterator[None]:
        """Report no phase in the block, so that the subject is not at fault if the process dies there."""
        self._blames_nobody = True
        try:
            yield
        finally:
            self._blames_nobody = False

    @contextmanager
    def subject_fault(self) -> Iterator[None]:
        """See `Trial.subject_fault`."""
        before = self.enter(Phase.SUBJECT)
        try:
            yield
        except NotObserved:  # a falsifier may catch it and continue without the value
            self.enter(before)
            raise
        except (*NOT_THE_SUBJECTS, SubjectFault, GeneratorExit):
            raise
        except BaseException as error:  # also asyncio.CancelledError and SystemExit
            fault = self._first(SubjectFault(described(error)), error)
            raise fault from fault.__cause__
        self.enter(before)

    @contextmanager
    def falsifier_fault(self) -> Iterator[None]:
        """See `Trial.falsifier_fault`."""
        before = self.enter(Phase.FALSIFIER)
        try:
            yield
        except SubjectFault:
            raise
        except NOT_THE_SUBJECTS as error:
            self.fault = self.fault or error
            raise
        except Exception as error:
            fault = self._first(FalsifierFault(described(error)), error)
            raise fault from fault.__cause__
        self.enter(before)

    def _first(self, fault: Exception, cause: BaseException) -> Exception:
        """Store this fault if it is the first, and return the first fault with its own cause."""
        if self.fault is None:
            fault.__cause__ = cause
            self.fault = fault
        return self.fault

    def raise_fault(self) -> None:
        """Raise the first fault, if any, even if the falsifier caught it."""
        if self.fault is not None:
            raise self.fault

    def raise_unheard(self) -> None:
        """Raise `NotObserved` if no part of the output could be parsed. The trial is then NOT_MEASURED."""
        if self.unheard is not None:
            raise self.unheard
