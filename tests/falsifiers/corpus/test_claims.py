"""The claims that judge functions and suites: the healthy subject passes, and every mutant fails on its own clauses."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.vocabulary import Outcome
from harness.contract import Mutant
from harness.contract.project import Project
from tests.falsifiers.in_process import judged

PROJECT = Project.find(Path(__file__).parent)
CLAIMS = ["F-CORPUS-FUNCTION-001", "F-CORPUS-SUITE-001", "F-CORPUS-NOTICE-001"]
MUTANTS = [(claim, one) for claim in CLAIMS for one in PROJECT.contract(claim).mutants]


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_healthy_subject_passes(claim: str, tmp_path: Path) -> None:
    """Every clause is measured and holds."""
    contract = PROJECT.contract(claim)
    judgment = judged(contract, contract.subject, tmp_path)
    assert not judgment.with_outcome(Outcome.FAIL)
    assert not judgment.with_outcome(Outcome.NOT_MEASURED)


@pytest.mark.parametrize(("claim", "mutant"), MUTANTS, ids=lambda one: one if isinstance(one, str) else one.id)
def test_a_mutant_fails_on_its_clauses(claim: str, mutant: Mutant, tmp_path: Path) -> None:
    """On all that the contract names."""
    judgment = judged(PROJECT.contract(claim), mutant.subject, tmp_path, mutant)
    assert {*mutant.violates} <= {one.id for one in judgment.with_outcome(Outcome.FAIL)}
