"""The claims that judge functions and suites: the healthy subject passes, and every mutant fails on its own clauses."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.contract import Mutant
from tests.falsifiers.in_process import Claims

CLAIMS = Claims.of("corpus")


@pytest.mark.parametrize("claim", CLAIMS.contracts)
def test_the_healthy_subject_passes(claim: str, tmp_path: Path) -> None:
    CLAIMS.holds(claim, tmp_path)


@pytest.mark.parametrize(("claim", "mutant"), CLAIMS.mutants())
def test_a_mutant_dies(claim: str, mutant: Mutant, tmp_path: Path) -> None:
    CLAIMS.dies(claim, mutant, tmp_path)
