"""F-BLACKWELL-ABLATION-001: the cap is the only fix that helps, unless the subject's memory says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.vocabulary import Outcome
from harness.contract.project import Project
from tests.falsifiers.in_process import judged

_CONTRACT = Project.find(Path(__file__).parent).contract("F-BLACKWELL-ABLATION-001")


def test_the_cap_is_the_fix(tmp_path: Path) -> None:
    """Four blocks are enough to run out of memory."""
    assert not judged(_CONTRACT, _CONTRACT.subject, tmp_path, blocks=4).with_outcome(Outcome.FAIL)


@pytest.mark.parametrize("name", ["workspace-by-kernels", "every-second-attempt-fails"])
def test_a_mutant_fails_its_clauses(tmp_path: Path, name: str) -> None:
    """Two causes that are needed together, and a failure without a cause."""
    (mutant,) = (one for one in _CONTRACT.mutants if one.id == name)
    judgment = judged(_CONTRACT, mutant.subject, tmp_path, mutant, blocks=4)
    assert set(mutant.violates) <= {clause.id for clause in judgment.with_outcome(Outcome.FAIL)}
