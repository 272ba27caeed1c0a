"""The claims in this process, reduced: the reference passes what is true, and mutants are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.base.vocabulary import Fate, Outcome
from harness.contract import Mutant
from harness.contract.project import Project
from harness.judging.verdict import fate_of
from tests.falsifiers.in_process import judged

CONTRACTS = Path(__file__).parents[3] / "contracts" / "param_decomp"
PROJECT = Project.find(CONTRACTS)
CLAIMS = {
    path.parent.name: PROJECT.contract(path.parent.name)
    for path in sorted(CONTRACTS.glob("*/contract.json"))
    if not path.parent.name.startswith(("F-PD-JAX-", "F-PD-SOURCE-"))
}
"""Those of JAX run in processes of their own (`test_jax.py`): it starts once in a process, with its devices.

Those on the source's files need a checkout (`test_checkouts.py`).
"""
FALSE = {
    "F-PD-SHARD-FLOOR-001": {"per_device_gib.minimum"},
    "F-PD-DOC-DRIFT-001": {"batch_ratio.maximum", "sequence_ratio.minimum", "steps_ratio.minimum", "eps_ratio.maximum"},
}
"""Claims that their source states falsely, and the clauses that they fail."""
TRACED = {name for name in CLAIMS if name.startswith(("F-PD-HEADROOM-", "F-PD-MEM-", "F-PD-MEMPROBE-"))}
"""Claims that trace and measure several steps: ten seconds for each subject."""


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """The tensors are tiny, so a second thread costs more time than it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("claim", sorted(CLAIMS.keys() - TRACED))
def test_the_reference_holds_what_is_true(claim: str, tmp_path: Path) -> None:
    """Every clause passes, except those that the source states falsely."""
    judgment = judged(CLAIMS[claim], CLAIMS[claim].subject, tmp_path)
    assert {clause.id for clause in judgment.with_outcome(Outcome.FAIL)} == FALSE.get(claim, set())
    assert not judgment.with_outcome(Outcome.NOT_MEASURED)


@pytest.mark.parametrize(
    ("claim", "mutant"),
    [
        pytest.param(name, one, id=f"{name}-{one.id}")
        for name, contract in CLAIMS.items()
        for one in contract.mutants[:: 1 if name == "F-PD-DONATION-001" else 3]
        if name not in TRACED
    ],
)
def test_a_mutant_dies(claim: str, mutant: Mutant, tmp_path: Path) -> None:
    """The mutant fails on the clauses that its contract names.

    Every third mutant is tried; a run of the claim has all.
    """
    fate = fate_of(mutant, judged(CLAIMS[claim], mutant.subject, tmp_path, mutant))
    assert fate.fate is Fate.KILLED, fate.reason
