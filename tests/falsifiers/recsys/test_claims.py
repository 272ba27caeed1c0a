"""The claims in this process, reduced: the reference passes, and mutants are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import Outcome
from tests.falsifiers.distill.oracle.test_step import reached
from tests.falsifiers.in_process import Claims

FEWER: dict[str, dict[str, Any]] = {
    "F-HSTU-FWD-001": {"cases": 4, "widths": [32]}, "F-HSTU-BWD-001": {"cases": 4, "widths": [32]},
    "F-HSTU-STRIDE-001": {"cases": 1, "largest_length": 16},
    "F-HSTU-ADJOINT-001": {"cases": 2}, "F-HSTU-FLOPS-001": {"cases": 8}, "F-HSTU-DISPATCH-001": {"cases": 10},
    "F-SLURM-ENV-001": {"topologies": ["18x4 stated"], "nodes_run": 1},
    "F-PIPE-PARITY-001": {"trainings": ["compute sgd dense 2 2 static", "copy adam dense 2 0 dynamic"]},
    "F-PIPE-CKPT-001": {"trainings": ["none prefetch compute adam dense 2 2 dynamic"]},
    "F-DYNEMB-LOOKUP-001": {"batch": 24, "lookups": 2}, "F-DYNEMB-DUMP-001": {"batch": 48, "lookups": 2},
    "F-DYNEMB-EVICT-001": {"most": 150}, "F-DYNEMB-REHASH-001": {"buckets": 2},
    "F-IMPORT-CYCLE-001": {"links": [1]}, "F-BUILD-PAR-001": {"files": 2},
}  # fmt: skip
"""Parameters for fewer cases, by claim: the first ones of every search."""
ELSEWHERE = "-SOURCE-", "F-HSTU-ASSERT-COUNT-", "F-HSTU-COVERAGE-"
"""Those on the source's code need a checkout (`test_checkouts.py`). The others run pytest often: `test_smoke.py`
tests their parts, and tests/tools/suite the mechanism."""
CLAIMS = Claims.of("recsys", *ELSEWHERE, fewer=FEWER)
SAMPLE = [
    *(("F-HSTU-FWD-001", mutant) for mutant in ("one-more-in-scaling", "alpha-too-large", "small-rows-flushed")),
    *(("F-HSTU-BWD-001", mutant) for mutant in ("additive-mask", "in-order-of-arrival", "sigmoid-as-slope")),
    ("F-HSTU-STRIDE-001", "strides-assumed"),
    ("F-HSTU-STRIDE-001", "gradient-taken-for-contiguous"),
    ("F-HSTU-FWD-001", "alpha-of-the-width"),
    ("F-HSTU-ADJOINT-001", "keys-without-alpha"),
    ("F-HSTU-FLOPS-001", "world-sum"),
    ("F-HSTU-MFU-SUBSTR-001", "first-part-decides"),
    ("F-HSTU-DISPATCH-001", "next-generation"),
    ("F-HSTU-CTX-GUARD-001", "contextuals-ignored"),
    ("F-SLURM-ENV-001", "size-unset"),
    ("F-SLURM-GPU-TASK-001", "command-before-options"),
    *(("F-PIPE-PARITY-001", mutant) for mutant in ("copy-not-awaited", "stale-rows", "copy-not-kept", "in-turn")),
    ("F-PIPE-CKPT-001", "step-lost"),
    ("F-PIPE-MATRIX-001", "repeated-value"),
    *(("F-DYNEMB-LOOKUP-001", mutant) for mutant in ("others-occurrences-lost", "evicted-stays-cached")),
    ("F-DYNEMB-EVICT-001", "batch-recorded"),
    ("F-DYNEMB-REHASH-001", "stale-places"),
    ("F-DYNEMB-DUMP-001", "since-after"),
    ("F-IMPORT-CYCLE-001", "error-swallowed"),
    ("F-BUILD-PAR-001", "one-job"),
    ("F-COUNT-001", "file-ignored"),
]
"""Mutants by claim. A run of a claim has all of them."""


@pytest.mark.parametrize("claim", CLAIMS.contracts)
def test_the_reference_holds(claim: str, tmp_path: Path) -> None:
    CLAIMS.holds(claim, tmp_path)


@pytest.mark.parametrize(("claim", "name"), SAMPLE)
def test_a_mutant_dies(claim: str, name: str, tmp_path: Path) -> None:
    CLAIMS.dies(claim, next(mutant for mutant in CLAIMS.contracts[claim].mutants if mutant.id == name), tmp_path)


@pytest.mark.parametrize("claim", ["F-HSTU-FWD-001", "F-HSTU-BWD-001"])
def test_another_implementation_passes(claim: str, tmp_path: Path) -> None:
    """Dense weights in float64 pass, so the bounds are not made for our kernels."""
    other = "falsifiers.recsys.reference.dense_attention:Float64Attention"
    assert not CLAIMS.judged(claim, tmp_path, subject=other).with_outcome(Outcome.FAIL)


ORACLE = Path(__file__).parents[3] / "falsifiers" / "recsys" / "oracle"


def test_the_oracle_reaches_no_subject() -> None:
    """The oracle may import the Protocol.

    It imports neither the reference nor a mutant, directly or through another module.
    """
    found = reached(sorted(ORACLE.glob("*.py")))
    assert "falsifiers.recsys.subject" in found
    assert [name for name in sorted(found) if {"reference", "mutants"} & set(name.split("."))] == []
