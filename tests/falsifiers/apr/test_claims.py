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
from harness.base.vocabulary import Outcome
from harness.contract import Mutant
from tests.falsifiers.in_process import Claims

NAMES = "F-APR-V2-CRC-001", "F-APR-V2-LAYOUT-001"
CLAIMS = Claims.of("apr", fewer={name: {"cases": len(KNOWN)} for name in NAMES})
"""Only the known cases are tried, so the result does not depend on the seed."""


@pytest.mark.parametrize("claim", CLAIMS.contracts)
def test_the_reference_holds_what_is_true(claim: str, tmp_path: Path) -> None:
    CLAIMS.holds(claim, tmp_path)


@pytest.mark.parametrize(("claim", "mutant"), CLAIMS.mutants())
def test_a_mutant_dies(claim: str, mutant: Mutant, tmp_path: Path) -> None:
    CLAIMS.dies(claim, mutant, tmp_path)


class _WritesNothing(Reference):
    def write(self, file: Any) -> Any:
        return None


@pytest.mark.parametrize("claim", CLAIMS.contracts)
def test_a_writer_of_no_bytes_is_to_blame(claim: str, tmp_path: Path) -> None:
    judgment = CLAIMS.judged(claim, tmp_path, subject=f"{__name__}:_WritesNothing")
    assert "subject.completes" in {clause.id for clause in judgment.with_outcome(Outcome.FAIL)}


def test_the_two_claims_share_their_files() -> None:
    """Both claims try the same files. Names are unique within a file and fit the format."""
    for case in KNOWN.values():
        names = [tensor["name"] for tensor in case["tensors"]]
        assert len(set(names)) == len(names)
        assert all(len(name.encode()) <= 256 for name in names)


@settings(max_examples=200)
@given(case=layout._CASES)
def test_no_drawn_case_is_one_that_the_format_has_no_room_for(case: Mapping[str, Any]) -> None:
    """Every drawn case fits the format: names of at most 256 bytes, shapes of at most eight dimensions."""
    for tensor in case["tensors"]:
        assert len(tensor["name"].encode()) <= 256
        assert len(tensor["shape"]) <= 8
