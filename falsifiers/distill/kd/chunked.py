"""F-DISTILL-KD-CHUNKED-001: a loss that is computed in chunks has the value and the gradients of the formula."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falsifiers.distill.kd.cases import HALF
from falsifiers.distill.kd.comparing import compare
from falsifiers.distill.kd.formulas import Truth
from falsifiers.distill.kd.gradient import gradient_errors
from falsifiers.distill.kd.subject import Answer, KdLoss, Question
from falsifiers.distill.kd.value import value_errors
from harness import Trial

__all__ = ["falsify"]


def falsify(trial: Trial[KdLoss]) -> None:
    """Measure what F-DISTILL-KD-LOSS-001 and F-DISTILL-KD-GRAD-001 measure, on the same cases."""
    compare(trial, ("float64", "float32", *HALF), _errors)


def _errors(
    trial: Trial[KdLoss], case: Mapping[str, Any], asked: Question, answer: Answer, right: Truth
) -> dict[str, float]:
    both = {"loss": value_errors, "gradient": gradient_errors}
    return {
        f"{part}_{name}": error
        for part, measure in both.items()
        for name, error in measure(trial, case, asked, answer, right).items()
    }
