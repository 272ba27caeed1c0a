"""F-DISTILL-KD-LOSS-001: the distillation loss has the value of its formula, for all inputs."""

from collections.abc import Mapping
from typing import Any

from falsifiers.distill.kd.cases import HALF
from falsifiers.distill.kd.comparing import compare, precision
from falsifiers.distill.kd.formulas import Truth
from falsifiers.distill.kd.subject import Answer, KdLoss, Question
from harness import Trial


def falsify(trial: Trial[KdLoss]) -> None:
    """Compare the loss with the formula in float64, case by case; the contract bounds the error for each precision."""
    compare(trial, ("float64", "float32", *HALF), value_errors, "nan_stays_apart")


def value_errors(
    trial: Trial[KdLoss], case: Mapping[str, Any], question: Question, answer: Answer, right: Truth
) -> dict[str, float]:
    """The error of the loss. Above 1 nat it is relative to the loss's terms, which limit the precision of their sum."""
    return {f"errors_{precision(case)}": abs(float(answer.loss) - right.loss) / max(1.0, right.magnitude)}
