"""The tolerance of a step's difference from its shadow step, by quantity and by dtype of the subject's parameters.

F-DISTILL-STEP-001 judges by the same numbers; its notes have the largest errors of healthy runs. `update` is for
subjects that show no optimizer state: its largest ratios were 4.9e-4 in float32 and 3.5e-2 in bfloat16 (15 seeds).
"""

from collections.abc import Iterable, Mapping

from harness.authoring.shadow_step import Difference

TOLERANCES: Mapping[str, Mapping[str, float]] = {
    "float32": {
        "student_logits": 1e-5,
        "teacher_logits": 1e-5,
        "loss": 1e-5,
        "gradient": 1e-4,
        "exp_avg": 1e-4,
        "exp_avg_sq": 3e-4,
        "update": 5e-3,
        "applied": 1e-6,
        "rate": 1e-6,
        "initial_scale": 0.1,
        "initial_rank": 0.1,
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
        "rate": 1e-6,
        "initial_scale": 0.1,
        "initial_rank": 0.1,
    },
}

QUANTITIES = frozenset({*TOLERANCES["float32"], "number", "count", "batch"})
"""All quantities of a step and of initial weights. Any other is a slot that AdamW does not have."""


def refuted(differences: Iterable[Difference], dtype: str, share: float = 1.0) -> list[Difference]:
    """The differences beyond a share of their tolerance, largest ratio first; without a tolerance, those above 0."""
    beyond = [
        difference
        for difference in differences
        if difference.ratio > share * TOLERANCES[dtype].get(difference.quantity, 0.0)
    ]
    return sorted(beyond, key=lambda difference: -difference.ratio)
