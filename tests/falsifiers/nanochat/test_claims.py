"""The claims in this process, reduced: the reference passes what is true, and mutants are killed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.contract import Mutant
from tests.falsifiers.in_process import Claims

FALSE = {
    "F-GB10-BOUND-001": {"account_bound.const", "account_over_ridge.maximum"},
    "F-GB10-FLCE-MEM-001": {"step_saved[].minimum"},
    "F-GB10-KERNEL-ALIAS-001": {"only_triton.maxItems"},
    "F-GB10-TABLE-CONSIST-001": {
        "memory_saved_over_stated.minimum", "achieved_over_peak.maximum", "alias_ratio.maximum"
    }
}  # fmt: skip
FEWER: dict[str, dict[str, Any]] = {
    "F-GB10-ARCHLIST-001": {"cases": 20},
    "F-GB10-AUTOTUNE-SMEM-001": {"cases": 10},
    "F-GB10-FLCE-EXACT-001": {"cases": 77},
    "F-GB10-FLCE-MEM-001": {"layers": 2, "vocabulary": 6656},
    "F-GB10-FLOPS-001": {"cases": 2},
    "F-GB10-LIGER-LOSS-001": {"compiler": "eager"},
    "F-GB10-MFU-001": {"cases": 6, "rounds": 2, "steps": 2, "buffer_mib": 1, "widths": [64], "layers": 1},
    "F-GB10-NVFP4-QUANT-001": {"cases": 3},
    "F-GB10-PTXAS-ORDER-001": {"capabilities": [121]},
    "F-GB10-TOKENIZER-001": {"cases": 5, "lines": 600},
}
"""Parameters for fewer cases, by claim: the first ones of every search, and smaller work."""
CLAIMS = Claims.of("nanochat", fewer=FEWER, false=FALSE)


@pytest.mark.parametrize("claim", CLAIMS.contracts)
def test_the_reference_holds_what_is_true(claim: str, tmp_path: Path) -> None:
    _in_a_child(_holds, claim, tmp_path)


@pytest.mark.parametrize(("claim", "mutant"), CLAIMS.mutants(6))
def test_a_mutant_dies(claim: str, mutant: Mutant, tmp_path: Path) -> None:
    _in_a_child(_dies, claim, mutant, tmp_path)


def _in_a_child(check: Callable[..., None], *arguments: Any) -> None:
    """Call a check in a process that ends.

    A process has one torch operator of a name, and some modules define ours. After a prediction of memory, none of its
    children can differentiate.
    """
    with ProcessPoolExecutor(1, get_context("fork"), torch.set_num_threads, (1,)) as pool:
        pool.submit(check, *arguments).result()


def _holds(claim: str, folder: Path) -> None:
    CLAIMS.holds(claim, folder)


def _dies(claim: str, mutant: Mutant, folder: Path) -> None:
    CLAIMS.dies(claim, mutant, folder)
