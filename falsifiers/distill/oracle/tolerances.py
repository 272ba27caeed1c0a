"""How far a healthy step may be from its shadow, by quantity and by the dtype of the subject's parameters.

Calibrated on the reduced profile of F-DISTILL-SMOKE-001, on a CPU. The largest ratios of healthy runs:

| quantity | float32 | bfloat16 |
|---|---|---|
| logits | 2.7e-7 (30 seeds) | 4.6e-3 (30 seeds) |
| loss | 2.3e-7 (30 seeds) | 4.3e-4 (30 seeds) |
| exp_avg | 5.2e-7 (15 seeds) | 0 (16 seeds) |
| exp_avg_sq | 6.2e-6 (15 seeds) | 0 (16 seeds) |
| update | 4.9e-4 (15 seeds) | 3.5e-2 (16 seeds) |
| applied | 1.6e-6 (30 seeds) | 1.5e-3 (30 seeds) |

The gradient that a subject shows has the tolerance of `exp_avg`, which is calibrated and holds the same gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.authoring.shadow_step import Difference

__all__ = ["TOLERANCES", "refuted"]

TOLERANCES: Mapping[str, Mapping[str, float]] = {
    "float32": {
        "student_logits": 1e-5,
        "teacher_logits": 1e-5,
        "loss": 1e-5,
        "gradient": 1e-4,
        "exp_avg": 1e-4,
        "exp_avg_sq": 3e-4,
        "update": 5e-3,
        "applied": 1e-5,
    },
    "bfloat16": {
        "student_logits": 2e-2,
        "teacher_logits": 2e-2,
        "loss": 2e-3,
        "gradient": 0.02,
        "exp_avg": 0.02,
        "exp_avg_sq": 0.05,
        "update": 0.2,
        "applied": 5e-3,
    },
}


def refuted(found: Iterable[Difference], dtype: str) -> list[Difference]:
    """The differences beyond their tolerance, largest ratio first. A quantity without a tolerance must be exact."""
    beyond = [one for one in found if one.ratio > TOLERANCES[dtype].get(one.quantity, 0.0)]
    return sorted(beyond, key=lambda one: -one.ratio)
