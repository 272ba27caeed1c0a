"""F-DISTILL-KD-CHUNKED-001: a loss computed in chunks has the value and the gradients of the formula."""

from collections.abc import Mapping
from typing import Any, Final

from falsifiers.distill.kd.cases import HALF, first_cases, question
from falsifiers.distill.kd.comparing import compare
from falsifiers.distill.kd.formulas import Truth, truth
from falsifiers.distill.kd.gradient import gradient_errors, scale_errors
from falsifiers.distill.kd.subject import Answer, KdLoss, Question
from falsifiers.distill.kd.value import value_errors
from harness import Trial

_EDGES: Final = tuple(2**power + 1 for power in range(4, 18))
"""Vocabulary sizes one above a kernel's block size; random sizes hardly ever are."""


def falsify(trial: Trial[KdLoss]) -> None:
    """Measure F-DISTILL-KD-LOSS-001 and F-DISTILL-KD-GRAD-001 on the same cases and on these vocabulary sizes."""
    compare(trial, ("float64", "float32", *HALF), _errors, "special_values")
    edges = [_at_an_edge(trial, size) for size in _EDGES if size <= trial.parameters["largest_vocabulary"]]
    trial.measure(
        edge_loss_errors=[edge["loss_errors_float32"] for edge in edges],
        edge_gradient_errors=[edge["gradient_errors_float32"] for edge in edges],
        scale_errors_half=scale_errors(trial),
    )


def _at_an_edge(trial: Trial[KdLoss], vocabulary: int) -> dict[str, float]:
    """The errors of a float32 case with this vocabulary size."""
    (first, *_) = first_cases(("float32",))
    case = {**first, "vocabulary": vocabulary, "seed": trial.seed}
    inputs = question(case, trial.device)
    right = truth(inputs)
    with trial.subject_fault():
        answer = trial.subject(inputs)
    return _errors(trial, case, inputs, answer, right)


def _errors(
    trial: Trial[KdLoss], case: Mapping[str, Any], question: Question, answer: Answer, right: Truth
) -> dict[str, float]:
    both = {"loss": value_errors, "gradient": gradient_errors}
    return {
        f"{part}_{name}": error
        for part, measure in both.items()
        for name, error in measure(trial, case, question, answer, right).items()
    }
