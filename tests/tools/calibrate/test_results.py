"""The margins of a falsifier, from the results of many runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import Fate
from harness.contract import Contract
from harness.evidence.seal import ClaimResult
from harness.tools.calibrate.results import SUBJECT, Margin, Rate, Spread, margins, measured, rates, spreads
from tests.contracts import contract_of, document, healthy
from tests.evidence.factory import claim_result


def results(folder: Path, *changes: dict[str, Any], **others: Any) -> list[ClaimResult]:
    """Runs whose subject measured other values."""
    return [claim_result(folder, measurements=healthy(**change), **others) for change in changes]


def test_who_passed_and_who_was_killed(tmp_path: Path) -> None:
    """The subject fails once, and the mutants are killed every time."""
    found = results(tmp_path, {}, {"returned": 0}, {})
    contract = found[0].contract
    subject, *mutants = rates(contract, found)
    assert subject == Rate(SUBJECT, 3, 2)
    assert [mutant.trial for mutant in mutants] == [mutant.id for mutant in contract.mutants]
    assert [mutant.violates for mutant in mutants] == [mutant.violates for mutant in contract.mutants]
    ran = {mutant.id: mutant.fate is not Fate.NOT_RUN for mutant in found[0].record.mutants}
    assert {mutant.trial: (mutant.runs, mutant.as_declared) for mutant in mutants} == {
        name: (3, 3) if did else (0, 0) for name, did in ran.items()
    }
    assert set(ran.values()) == {True, False}  # one needs a GPU


def test_mutants_that_were_skipped_are_not_told_of(tmp_path: Path) -> None:
    found = results(tmp_path, {}, skipped=True)
    assert [rate.trial for rate in rates(found[0].contract, found)] == [SUBJECT]


def test_margins_are_the_worst_and_the_best_of_all_runs(tmp_path: Path) -> None:
    """The subject has a margin for every threshold, and a mutant for its declared clauses, beside the recorded ones."""
    mutant = {**document()["mutants"][0], "id": "turned", "violates": ["ordered"]}
    recorded = {"reduced": {"mutants": {"turned": {"ordered": 3.0}}}}
    contract = replace(contract_of(document(mutants=[mutant])), calibration=recorded)
    found = [
        *results(tmp_path, {"largest": 4.0}, contract=contract, seed=5, mutants={"turned": {"smallest": 9.0}}),
        *results(tmp_path, {"largest": 8.0}, contract=contract, seed=6, mutants={"turned": {"smallest": 6.0}}),
    ]
    assert margins(contract, found) == [
        Margin(SUBJECT, "ordered", pytest.approx(1 / 8), pytest.approx(1 / 4), worst_seed=5),
        Margin("turned", "ordered", pytest.approx(2.0), pytest.approx(3.0), recorded=3.0, worst_seed=6),
    ]


def test_where_nothing_was_measured_there_is_no_margin(tmp_path: Path) -> None:
    found = results(tmp_path, {"smallest": ..., "largest": ...}, skipped=True)
    assert margins(found[0].contract, found) == []


def turned(folder: Path, *smallest: float) -> tuple[Contract, list[ClaimResult]]:
    """Runs with consecutive seeds in which a mutant reversed the order. The largest number is 3."""
    mutant = {**document()["mutants"][0], "id": "turned", "violates": ["ordered"]}
    contract = contract_of(document(mutants=[mutant]))
    found = [
        *(results(folder, {}, contract=contract, mutants={"turned": {"smallest": value}})[0] for value in smallest)
    ]
    seeded = [replace(result, record=replace(result.record, seed=5 + index)) for index, result in enumerate(found)]
    return contract, seeded


def test_recorded_is_the_smallest_ratio_of_a_mutant_and_the_largest_of_the_subject(tmp_path: Path) -> None:
    """Their seeds and device are recorded too."""
    contract, found = turned(tmp_path, 3.7, 9.0)
    assert measured(contract, found) == {
        "seeds": {"first": 5, "count": 2},
        "device": found[0].record.device.name,
        "subject": {"ordered": 0.333},
        "mutants": {"turned": {"ordered": 1.23}},
    }


@pytest.mark.parametrize("smallest", [3.0, 1.0])
def test_a_ratio_that_does_not_violate_is_not_recorded(tmp_path: Path, smallest: float) -> None:
    contract, found = turned(tmp_path, smallest, 9.0)
    assert measured(contract, found)["mutants"] == {}


def test_numbers_lie_between_least_and_most(tmp_path: Path) -> None:
    """Texts and truth values are not numbers."""
    found = results(tmp_path, {"returned": 3}, {"returned": 6})
    (spread,) = [spread for spread in spreads(found) if spread.measurement == "returned"]
    assert spread == Spread("returned", 3.0, 4.5, 6.0)
