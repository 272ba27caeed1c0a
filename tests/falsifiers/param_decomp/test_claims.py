"""The claims in this process, reduced: the reference passes what is true, and mutants are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.contract import Mutant
from tests.falsifiers.in_process import Claims

FALSE = {
    "F-PD-SHARD-FLOOR-001": {"per_device_gib.minimum"},
    "F-PD-DOC-DRIFT-001": {"batch_ratio.maximum", "sequence_ratio.minimum", "steps_ratio.minimum", "eps_ratio.maximum"},
}
ELSEWHERE = "F-PD-JAX-", "F-PD-SOURCE-", "F-PD-HEADROOM-", "F-PD-MEM-", "F-PD-MEMPROBE-"
"""JAX runs in processes of its own (`test_jax.py`), the source's files need a checkout (`test_checkouts.py`), and what
traces and measures several steps takes ten seconds for each subject."""
CLAIMS = Claims.of("param_decomp", *ELSEWHERE, false=FALSE)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """The tensors are tiny, so a second thread costs more time than it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("claim", CLAIMS.contracts)
def test_the_reference_holds_what_is_true(claim: str, tmp_path: Path) -> None:
    CLAIMS.holds(claim, tmp_path)


@pytest.mark.parametrize(("claim", "mutant"), CLAIMS.mutants(3))
def test_a_mutant_dies(claim: str, mutant: Mutant, tmp_path: Path) -> None:
    CLAIMS.dies(claim, mutant, tmp_path)
