"""What a trial has said so far: its messages, whose code runs, and the first fault."""

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
    """Sends the messages of one trial, and remembers how it has to end."""

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
        """The first fault, also if the falsifier or the subject catches it."""
        self.unheard: NotObserved | None = None
        """Why no part of the subject's output was understood."""

    def require_declared(self, names: Iterable[str]) -> None:
        """Check that the contract declares these measurements.

        Raises:
            UndeclaredMeasurement: it does not declare one of them.
        """
        for name in names:
            if name not in self._declared:
                known = ", ".join(sorted(self._declared))
                raise UndeclaredMeasurement(f"{name!r} is not declared in the contract; its observation has {known}")

    def hide(self, names: Iterable[str], reason: NotObserved) -> None:
        """Record why these measurements are not made."""
        if unseen := dict.fromkeys(names, str(reason)):
            self.report(Unseen(unseen))

    def enter(self, phase: Phase) -> Phase:
        """Record whose code runs from now on; return whose code ran until now."""
        before, self._phase = self._phase, phase
        if not self._blames_nobody:
            try:
                self.report(Entered(phase))
            except Exception as error:  # a defect of the harness, which the subject's call stack may surround
                raise self._first(FalsifierFault(described(error)), error) from error
        return before

    @contextmanager
    def blaming_nobody(self) -> Iterator[None]:
        """Report no phase in the block, so that a subject that ends the process there is not blamed for it."""
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
        except NotObserved:  # a falsifier may go on without what is not shown
            self.enter(before)
            raise
        except (*NOT_THE_SUBJECTS, SubjectFault, GeneratorExit):
            raise
        except BaseException as error:  # asyncio.CancelledError, SystemExit and whatever else a subject may raise
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
        """Keep this fault if it is the first; return the first one, which keeps its own cause."""
        if self.fault is None:
            fault.__cause__ = cause
            self.fault = fault
        return self.fault

    def raise_fault(self) -> None:
        """Raise the first fault, if there is one: it counts also if the falsifier caught it."""
        if self.fault is not None:
            raise self.fault

    def raise_unheard(self) -> None:
        """Raise `NotObserved` if nothing of the output was understood. The trial is then NOT_MEASURED."""
        if self.unheard is not None:
            raise self.unheard
