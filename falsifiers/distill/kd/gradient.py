"""F-DISTILL-KD-GRAD-001: the gradients equal the closed form, and differences of the subject's own loss."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import torch

from falsifiers.distill.kd.cases import HALF, first_cases, question
from falsifiers.distill.kd.comparing import compare, precision
from falsifiers.distill.kd.formulas import Truth, truth
from falsifiers.distill.kd.subject import Answer, KdLoss, Question
from falsifiers.distill.measuring.largest import largest
from harness import Trial

_STEP = 1e-3
"""Relative to the largest change of a logit. A fourth-order stencil has an error of the fourth power of this."""
_FLOOR = 1e-3
"""Share of the largest possible gradient: the least scale of an error, for gradients near zero."""


_HELD: Final = 181 / 128
"""An upstream gradient that half precision holds. Products with it round up and down alike, since 181 is odd."""
_BESIDE: Final = 0.98
"""Where beside it the upstream gradient is: 0 is the number, 1 the midpoint to the next one."""


def falsify(trial: Trial[KdLoss]) -> None:
    """Compare the gradients with the closed form; in float64 also with differences of the subject's own loss."""
    compare(trial, ("float64", "float32", *HALF), gradient_errors)
    trial.measure(scale_errors_half=scale_errors(trial))


def scale_errors(trial: Trial[KdLoss]) -> list[float]:
    """The relative error that all elements of a gradient share, in unit roundoffs of half precision.

    It is the projection of the error on the truth. The roundings of 4,000 logits' gradients cancel in it, but a factor
    that is rounded does not: the upstream gradient, a float32, is far from all numbers of the inputs' dtype.
    """
    errors = []
    for dtype in HALF:
        unit = torch.finfo(getattr(torch, dtype)).eps / 2
        (first, *_) = first_cases((dtype,))
        case = {**first, "rows": 64, "vocabulary": 400, "width": 16, "alpha": 0.0, "scale": 1.0, "skewed": False}
        inputs = question({**case, "seed": trial.seed, "upstream": _HELD + _BESIDE * unit}, trial.device)
        right = truth(inputs)
        with trial.subject_fault():
            answer = trial.subject(inputs)
            pairs = ((answer.student_gradient, right.student_gradient), (answer.head_gradient, right.head_gradient))
            shared = [float(((actual.double() - true) * true).sum() / true.square().sum()) for actual, true in pairs]
        errors += [abs(one) / unit for one in shared]
    return errors


def gradient_errors(
    trial: Trial[KdLoss], case: Mapping[str, Any], question: Question, answer: Answer, right: Truth
) -> dict[str, float]:
    """The error of the gradients; in float64 also their distance from differences of the subject's own loss."""
    if case["dtype"] in HALF:
        return {"errors_half": _rounding(answer, right)}
    errors = {f"errors_{precision(case)}": _error(answer, right)}
    if case["dtype"] == "float64":
        errors["inconsistencies"] = _inconsistency(trial, question, answer, right, case["seed"])
    return errors


def _rounding(answer: Answer, right: Truth) -> float:
    """The largest error of an element of either gradient, relative to the sum of the absolute values of its terms.

    It is at most the dtype's epsilon per rounding of a term or of the result, however many terms there are.
    """
    pairs = ((answer.student_gradient, right.student_gradient), (answer.head_gradient, right.head_gradient))
    return largest(
        float((actual.double() - true).abs().max()) / _scale(size, most)
        for (actual, true), size, most in zip(pairs, right.sizes, right.largest, strict=True)
    )


def _error(answer: Answer, right: Truth) -> float:
    """The largest error of an element of either gradient, relative to that gradient's largest element."""
    pairs = ((answer.student_gradient, right.student_gradient), (answer.head_gradient, right.head_gradient))
    return largest(
        float((actual.double() - true).abs().max()) / _scale(float(true.abs().max()), most)
        for (actual, true), most in zip(pairs, right.largest, strict=True)
    )


def _inconsistency(trial: Trial[KdLoss], question: Question, answer: Answer, right: Truth, seed: int) -> float:
    """The distance of the gradients from a difference of the subject's own losses along one direction of all inputs.

    A value and a gradient of different losses show here without a known formula.
    """
    generator = torch.Generator().manual_seed(seed)
    directions = [
        torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.device)
        for tensor in (question.student, question.student_head)
    ]
    for direction, other in zip(directions, (question.student_head, question.student), strict=True):
        # In one unit of either direction, no logit moves by more than 1.
        direction /= max(1e-30, float(other.norm(dim=-1).max() * direction.norm(dim=-1).max()))
    gradients = (answer.student_gradient, answer.head_gradient)
    along = sum(float((gradient.double() * way).sum()) for gradient, way in zip(gradients, directions, strict=True))

    def moved(steps: float) -> float:
        student, head = (
            tensor + steps * _STEP * way
            for tensor, way in zip((question.student, question.student_head), directions, strict=True)
        )
        with trial.subject_fault():
            return float(trial.subject(dataclasses.replace(question, student=student, student_head=head)).loss)

    difference = (8.0 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12.0 * _STEP)
    steepest = question.alpha + (1.0 - question.alpha) * question.temperature
    return abs(along / question.upstream - difference) / _scale(abs(difference), steepest)


def _scale(size: float, most: float) -> float:
    return max(size, _FLOOR * most, 1e-30)
