"""What a falsifier and the toolkit write into a trial's log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.authoring import toolkit_log
from harness.authoring.faults import FalsifierFault, SubjectFault
from harness.authoring.recorder import Recorder
from harness.authoring.reports import Logged, TrialReport
from harness.authoring.setting import Setting
from harness.authoring.shadow_step import chosen_steps
from harness.authoring.timing import interleave
from harness.authoring.trial import Trial


@pytest.fixture
def reports() -> Iterator[list[TrialReport]]:
    """The messages of this process, as of a trial's."""
    reports: list[TrialReport] = []
    toolkit_log.log_to(reports.append)
    yield reports
    toolkit_log._reports.clear()


def trial(reports: list[TrialReport]) -> Trial[Any]:
    """A trial with these messages."""
    setting = Setting({}, "cpu", 0, Path(), Path())
    return Trial(None, setting, Path(), Recorder(frozenset(), reports.append))


def test_a_falsifier_writes_its_decision(reports: list[TrialReport]) -> None:
    """Every such line is kept: it has no topic."""
    trial(reports).log("shard 2 of 3 is held out")
    assert reports == [Logged("shard 2 of 3 is held out")]


def test_only_a_text_is_a_line(reports: list[TrialReport]) -> None:
    """An object of the subject would run its code."""

    class Text(str):
        pass

    for wrong in (3, Text("x")):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            trial(reports).log(wrong)  # type: ignore[arg-type]
    assert reports == []


def test_the_toolkit_writes_what_was_drawn(reports: list[TrialReport]) -> None:
    """The log has the steps that are checked, with their seed."""
    steps = chosen_steps(7, 50, around=(5,))
    (line,) = reports
    assert isinstance(line, Logged)
    assert all(str(step) in line.text for step in (*steps, "seed 7"))


def test_nothing_is_sent_while_arms_are_timed(reports: list[TrialReport]) -> None:
    """Writing must not disturb a timing."""
    seen: list[int] = []
    interleave({"a": lambda: seen.append(len(reports)), "b": lambda: None}, rounds=4, warmup=2, seed=0)
    assert set(seen) == {1}
    assert len(reports) == 3


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
    messages: list[object] = []

    def report(message: object) -> None:
        messages.append(message)
        if len(messages) == 2:
            raise RuntimeError("dictionary changed size during iteration")

    recorder = Recorder(frozenset(), report)
    raised = pytest.raises(FalsifierFault, match="dictionary changed size")
    with raised, recorder.subject_fault(), recorder.falsifier_fault():
        pass
