"""The claims in this process, reduced: the reference passes what is true, and mutants are killed."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.base.vocabulary import Fate, Outcome
from harness.contract import Mutant
from harness.contract.project import Project
from harness.judging.verdict import fate_of
from tests.falsifiers.in_process import judged

CONTRACTS = Path(__file__).parents[3] / "contracts" / "nanochat"
PROJECT = Project.find(CONTRACTS)
CLAIMS = {path.parent.name: PROJECT.contract(path.parent.name) for path in sorted(CONTRACTS.glob("*/contract.json"))}
ANYWHERE = {name: one for name, one in CLAIMS.items() if "reduced" in one.profiles}
"""The claims with a reduced profile, which needs no GPU."""
FALSE = {
    "F-GB10-BOUND-001": {"account_bound.const", "account_over_ridge.maximum"},
    "F-GB10-FLCE-MEM-001": {"step_saved[].minimum"},
    "F-GB10-KERNEL-ALIAS-001": {"only_triton.maxItems"},
    "F-GB10-TABLE-CONSIST-001": {
        "memory_saved_over_stated.minimum", "achieved_over_peak.maximum", "alias_ratio.maximum"
    }
}  # fmt: skip
"""Claims that their source states falsely, and the clauses that they fail."""
FEWER: dict[str, dict[str, Any]] = {
    "F-GB10-ARCHLIST-001": {"cases": 20},
    "F-GB10-AUTOTUNE-SMEM-001": {"cases": 10},
    "F-GB10-FLCE-EXACT-001": {"cases": 65},
    "F-GB10-FLCE-MEM-001": {"layers": 2, "vocabulary": 6656},
    "F-GB10-FLOPS-001": {"cases": 2},
    "F-GB10-LIGER-LOSS-001": {"compiler": "eager"},
    "F-GB10-MFU-001": {"cases": 6, "rounds": 2, "steps": 2, "buffer_mib": 1, "widths": [64], "layers": 1},
    "F-GB10-NVFP4-QUANT-001": {"cases": 3},
    "F-GB10-PTXAS-ORDER-001": {"capabilities": [121]},
    "F-GB10-TOKENIZER-001": {"cases": 5, "lines": 600},
}
"""Parameters for fewer cases, by claim: the first ones of every search, and smaller work."""


@pytest.mark.parametrize("claim", sorted(ANYWHERE))
def test_the_reference_holds_what_is_true(claim: str, tmp_path: Path) -> None:
    """Every clause passes, except those that the source states falsely."""
    judgment = judged(CLAIMS[claim], CLAIMS[claim].subject, tmp_path, **FEWER.get(claim, {}))
    assert {clause.id for clause in judgment.with_outcome(Outcome.FAIL)} == FALSE.get(claim, set())
    assert not judgment.with_outcome(Outcome.NOT_MEASURED)


@pytest.mark.parametrize(
    ("claim", "mutant"),
    [
        pytest.param(name, one, id=f"{name}-{one.id}")
        for name, contract in ANYWHERE.items()
        for one in contract.mutants[::6]
        if not one.requires
    ],
)
def test_a_mutant_dies(claim: str, mutant: Mutant, tmp_path: Path) -> None:
    """The mutant fails on the clauses that its contract names.

    Every sixth mutant is tried; a run of the claim has all. A process has one torch operator of a name, so the modules
    that define ours are imported anew in a process that ends.
    """
    with ProcessPoolExecutor(1, get_context("fork"), torch.set_num_threads, (1,)) as pool:
        fate, reason = pool.submit(_fate, claim, mutant, tmp_path).result()
    assert fate is Fate.KILLED, reason


def _fate(claim: str, mutant: Mutant, folder: Path) -> tuple[Fate, str | None]:
    found = fate_of(mutant, judged(CLAIMS[claim], mutant.subject, folder, mutant, **FEWER.get(claim, {})))
    return found.fate, found.reason
