"""How far a healthy step may be from its shadow, by quantity and by the dtype of the subject's parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from harness.authoring.shadow_step import Difference

__all__ = ["TOLERANCES", "refuted"]

TOLERANCES: Mapping[str, Mapping[str, float]] = {
    "float32": {
        "student_logits": 1e-5,
        "teacher_logits": 1e-5,
        "loss": 1e-5,
        "gradient": 1e-3,
        "exp_avg": 2e-3,
        "exp_avg_sq": 3e-3,
        "update": 5e-2,
        "applied": 1e-5,
    },
    "bfloat16": {
        "student_logits": 5e-2,
        "teacher_logits": 5e-2,
        "loss": 5e-3,
        "gradient": 2.0,
        "exp_avg": 2.0,
        "exp_avg_sq": 2.0,
        "update": 2.0,
        "applied": 1e-2,
    },
}


def refuted(found: Iterable[Difference], dtype: str) -> list[Difference]:
    """The differences beyond their tolerance, largest ratio first. A quantity without a tolerance must be exact."""
    beyond = [one for one in found if one.ratio > TOLERANCES[dtype].get(one.quantity, 0.0) or math.isnan(one.ratio)]
    return sorted(beyond, key=lambda one: -one.ratio)
