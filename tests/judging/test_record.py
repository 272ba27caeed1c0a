"""What a record says beside its fields."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.device import Device
from harness.base.vocabulary import Fate
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.record import MutantRecord, Record
from harness.judging.verdict import MutantOutcome
from tests.evidence.factory import claim_result


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
        ("harness.external.adapter:Command", {"trainer": "mine.toml"}, "command:mine.toml"),
        ("harness.external.adapter:Recorded", {"trainer": "mine.toml", "dir": "run"}, "recorded:mine.toml"),
    ],
)
def test_the_subject_as_the_command_line_takes_it(
    tmp_path: Path, subject: str, parameters: dict[str, Any], expected: str
) -> None:
    """An external trainer is named by its kind and its file."""
    assert record(tmp_path, subject=subject, subject_parameters=parameters).judged == expected
