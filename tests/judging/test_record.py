"""What a record says beside its fields."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.device import Device
from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract.clauses import ClauseResult
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.record import MutantRecord, Record
from harness.judging.verdict import MutantOutcome
from tests.evidence.factory import claim_result

OUTSIDE = "falsifiers.distill.external:Command"
PASS = (Outcome.PASS, None)
UNTOLD = (Outcome.NOT_MEASURED, Reason(ReasonCode.NOT_READ_BACK, "device"))
UNSEEN = (Outcome.NOT_MEASURED, Reason(ReasonCode.MISSING, "a", "there is no checkpoint"))


def record(folder: Path, **changes: Any) -> Record:
    """A record with these fields."""
    return claim_result(folder, **changes).record


def _mutant(fate: Fate) -> MutantRecord:
    reason = Reason(ReasonCode.PASSED)
    return MutantRecord(str(fate), "a:B", "a defect", ("one",), fate, reason, ("one",), 2.0, {"one": 1})


def test_a_mutants_outcome_is_its_judged_part() -> None:
    """It has the values of the failed clauses, too."""
    expected = MutantOutcome("killed", Fate.KILLED, Reason(ReasonCode.PASSED), ("one",), {"one": 1})
    assert _mutant(Fate.KILLED).outcome() == expected


def test_fates_are_counted_in_their_order(tmp_path: Path) -> None:
    """A fate of no mutant is left out."""
    mutants = tuple(map(_mutant, (Fate.NOT_RUN, Fate.KILLED, Fate.NOT_RUN)))
    counted = replace(record(tmp_path), mutants=mutants).fates
    assert list(counted.items()) == [(Fate.KILLED, 1), (Fate.NOT_RUN, 2)]


@pytest.mark.parametrize(
    ("unjudged", "text"),
    [
        ((), ""),
        (("ordered",), "ordered"),
        (("a.type", "b.closed"), "a.type, b.closed"),
        (("ordered", "a.type", "least.minimum", "b.closed"), "ordered, least.minimum and 2 on types"),
    ],
)
def test_what_was_left_out_for_a_reader(tmp_path: Path, unjudged: tuple[str, ...], text: str) -> None:
    """Clauses that only check a type are counted, unless there are no others."""
    assert record(tmp_path, unjudged=unjudged).left_out == text


@pytest.mark.parametrize(
    ("target", "expected"),
    [({}, True), ({"type": "cuda"}, True), ({"type": "cpu"}, False), ({"device": "B200"}, False)],
)
def test_whether_a_run_used_the_hardware_of_its_claim(tmp_path: Path, target: Any, expected: bool) -> None:
    """A claim that names no hardware is met everywhere."""
    assert record(tmp_path, target=target, device=Device("cuda", "NVIDIA H200", "9.0")).on_target is expected


@pytest.mark.parametrize(
    ("subject", "parameters", "expected"),
    [
        ("a.b:Sorter", {}, "a.b:Sorter"),
        ("harness.tools.trainer.adapter:Command", {"trainer": "mine.toml"}, "command:mine.toml"),
        ("harness.tools.trainer.adapter:Recorded", {"trainer": "mine.toml", "dir": "run"}, "recorded:mine.toml"),
    ],
)
def test_the_subject_as_the_command_line_takes_it(
    tmp_path: Path, subject: str, parameters: dict[str, Any], expected: str
) -> None:
    """An external trainer is named by its kind and its file."""
    assert record(tmp_path, subject=subject, subject_parameters=parameters).judged == expected


@pytest.mark.parametrize(
    ("subject", "clauses", "mutants", "accepted"),
    [
        (OUTSIDE, {"a": PASS, "resolved.device": UNTOLD}, [Fate.KILLED], True),
        (OUTSIDE, {"a": PASS, "resolved.device": UNTOLD}, [], False),
        (OUTSIDE, {"a": PASS, "resolved.device": UNTOLD}, [Fate.KILLED, Fate.SURVIVED], False),
        (OUTSIDE, {"a": UNSEEN, "resolved.device": UNTOLD}, [Fate.KILLED], False),
        (OUTSIDE, {"a": (Outcome.FAIL, None), "resolved.device": UNTOLD}, [Fate.KILLED], False),
        ("toy:Subject", {"a": PASS, "resolved.device": UNTOLD}, [Fate.KILLED], False),
    ],
)
def test_what_the_policy_on_outside_subjects_accepts(
    tmp_path: Path, subject: str, clauses: Any, mutants: list[Fate], accepted: bool
) -> None:
    """Only what the output alone could tell may be missing, of a subject in another process, with mutants killed."""
    results = tuple(
        ClauseResult(name, outcome, None, None, reason=reason) for name, (outcome, reason) in clauses.items()
    )
    is_measured = all(result.outcome is not Outcome.FAIL for result in results)
    changed = replace(
        record(tmp_path),
        subject=subject,
        subject_parameters={"trainer": "a.toml"} if subject == OUTSIDE else {},
        verdict=Verdict.NOT_MEASURED if is_measured else Verdict.FAIL,
        clauses=results,
        mutants=tuple(map(_mutant, mutants)),
        mutants_skipped=False,
        proven=mutants == [Fate.KILLED],
    )
    assert changed.lacks_only_not_visible is accepted
