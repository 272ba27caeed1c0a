"""What a trial remembers of its faults."""

from __future__ import annotations

from contextlib import suppress

import pytest

from harness.authoring.faults import FalsifierFault, SubjectFault
from harness.authoring.recorder import Recorder


@pytest.mark.parametrize(("phase", "kind"), [("subject_fault", SubjectFault), ("falsifier_fault", FalsifierFault)])
def test_the_first_fault_counts_and_keeps_its_cause(phase: str, kind: type[Exception]) -> None:
    """A later fault, after one that the falsifier swallowed, changes neither its text nor its cause."""
    recorder, first = Recorder(frozenset(), lambda _: None), ValueError("first")
    for error in (first, KeyError("second")):
        with suppress(kind), getattr(recorder, phase)():
            raise error
    with pytest.raises(kind, match="ValueError: first") as raised:
        recorder.raise_fault()
    assert raised.value.__cause__ is first


def test_a_report_that_fails_is_not_the_subject_s_fault() -> None:
    """The subject calls the falsifier, which reports the phase: the subject's frames surround the defect."""
    told: list[object] = []

    def report(message: object) -> None:
        told.append(message)
        if len(told) == 2:
            raise RuntimeError("dictionary changed size during iteration")

    recorder = Recorder(frozenset(), report)
    raised = pytest.raises(FalsifierFault, match="dictionary changed size")
    with raised, recorder.subject_fault(), recorder.falsifier_fault():
        pass
