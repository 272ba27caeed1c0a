"""The claims on their known cases: the reference passes, and every mutant fails on its own clauses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from falsifiers.apr import layout
from falsifiers.apr.reference import Reference
from falsifiers.apr.tensor_sets import KNOWN
from harness import Setting
from harness.authoring.faults import SubjectFault
from harness.authoring.recorder import Recorder
from harness.base.device import Device
from harness.base.vocabulary import Outcome
from harness.contract import Mutant
from harness.contract.entry_point import resolve
from harness.contract.project import Project
from harness.judging.judge import judge
from harness.judging.observation import Observation
from tests.falsifiers.known_cases import KnownCases
from tests.falsifiers.planted import planted

PROJECT = Project.find(Path(__file__).parent)
CLAIMS = ("F-APR-V2-LAYOUT-001", "F-APR-V2-CRC-001")
MUTANTS = [(claim, mutant) for claim in CLAIMS for mutant in PROJECT.contract(claim).mutants]


def violated(claim: str, subject: type, folder: Path) -> set[str]:
    """The clauses that a subject violates."""
    contract = PROJECT.contract(claim)
    parameters = {"cases": 1}
    setting = Setting(parameters, "cpu", 0, folder, folder)
    seen: dict[str, Any] = {}
    declared = frozenset(contract.document["observation"]["properties"])
    recorder = Recorder(declared, lambda said: seen.update(getattr(said, "values", {})))
    try:
        with recorder.subject_fault():
            built = subject(setting)
        resolve(contract.falsifier)(KnownCases(built, setting, folder, recorder))
    except SubjectFault:
        return {"subject.completes"}
    measured = {name: value for name, value in seen.items() if name in declared}
    observation = Observation(
        subject="",
        profile="reduced",
        parameters=parameters,
        device=Device("cpu", "a CPU"),
        measurements=measured,
        resolved={"device": "cpu"},
    )
    judgment = judge(contract, observation)
    assert not judgment.with_outcome(Outcome.NOT_MEASURED)
    return {clause.id for clause in judgment.with_outcome(Outcome.FAIL)}


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_reference_passes(claim: str, tmp_path: Path) -> None:
    assert violated(claim, Reference, tmp_path) == set()


class _WritesNothing(Reference):
    def write(self, file: Any) -> Any:
        return None


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_writer_of_no_bytes_is_to_blame(claim: str, tmp_path: Path) -> None:
    assert violated(claim, _WritesNothing, tmp_path) == {"subject.completes"}


@pytest.mark.parametrize(("claim", "mutant"), MUTANTS, ids=[mutant.id for _, mutant in MUTANTS])
def test_a_mutant_falls_on_what_is_known_already(claim: str, mutant: Mutant, tmp_path: Path) -> None:
    """The known cases kill every mutant, so the result does not depend on the seed."""
    with planted(mutant):
        assert set(mutant.violates) <= violated(claim, resolve(mutant.subject), tmp_path)


def test_the_two_claims_share_their_files() -> None:
    """Both claims try the same files. Names are unique within a file and fit the format."""
    for case in KNOWN.values():
        names = [one["name"] for one in case["tensors"]]
        assert len(set(names)) == len(names)
        assert all(len(name.encode()) <= 256 for name in names)


@settings(max_examples=200)
@given(case=layout._CASES)
def test_no_drawn_case_is_one_that_the_format_has_no_room_for(case: Mapping[str, Any]) -> None:
    """Every drawn case fits the format: names of at most 256 bytes, shapes of at most eight dimensions."""
    for one in case["tensors"]:
        assert len(one["name"].encode()) <= 256
        assert len(one["shape"]) <= 8
