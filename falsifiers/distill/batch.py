"""F-DISTILL-BATCH-001: all rows of a batch train the student, equally, and by the loss that was asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import fmean

import torch
from torch import Tensor

from falsifiers.distill.measuring.held_out import divergence, surprise
from falsifiers.distill.oracle.corpus import Text, draw
from falsifiers.distill.running.training import train
from falsifiers.distill.subject import Gradients
from harness import NotMeasured, Trial

__all__ = ["falsify"]

_SEED = 40_403
_STEP = 0.0005  # share of the loss by which a step along a gradient should change it; far above rounding


def falsify(trial: Trial[Gradients]) -> None:
    """Look at a batch's gradient row by row, then along it, and train a few steps."""
    wanted = trial.parameters
    text = Text.read(wanted, trial.cache)
    inputs, labels = draw(text.held_out, (_SEED,), wanted["batch"] + 1, wanted["sequence"])
    inputs, labels = inputs.to(trial.device), labels.to(trial.device)
    _compare_rows(trial, inputs[:-1], labels[:-1], (inputs[-1], labels[-1]))
    _measure_slopes(trial, inputs[:-1], labels[:-1])
    train(trial)  # so that what ran is read back from a subject that trains


def _compare_rows(trial: Trial[Gradients], inputs: Tensor, labels: Tensor, spare: tuple[Tensor, Tensor]) -> None:
    """Compare a batch's gradient with the mean of its rows' own, and see whether every row can change it.

    Args:
        spare: inputs and labels of a row that replaces each row in turn.
    """

    def gradient(rows: Tensor, answers: Tensor) -> Tensor:
        with trial.subject_fault():
            return _flat(trial.subject.gradients(rows, answers))

    whole = gradient(inputs, labels)
    mean = torch.zeros_like(whole)  # one sum instead of all rows: a row's float64 gradient of 0.5B weights is 4 GB
    for row in range(len(inputs)):
        mean += gradient(inputs[row : row + 1], labels[row : row + 1]) / len(inputs)
    changes = []
    for row in range(len(inputs)):
        changed, answers = inputs.clone(), labels.clone()
        changed[row], answers[row] = spare
        changes.append(float((gradient(changed, answers) - whole).norm() / whole.norm()))
    # Each change is the gradient of one row, weighted by 1/rows, that replaces that of another row.
    trial.measure(
        rows=len(inputs),
        difference_from_mean=float((whole - mean).norm() / mean.norm()),
        changes=changes,
        repeated_difference=float((gradient(inputs, labels) - whole).norm() / whole.norm()),
    )


def _measure_slopes(trial: Trial[Gradients], inputs: Tensor, labels: Tensor) -> None:
    """Whether our own loss changes along the gradient by what the gradient says.

    First for text. Then for inputs and labels that are drawn token by token: for the difference of gradient and loss
    between two draws of labels. What does not depend on the labels cancels out, and no token says anything about its
    neighbours. So only the labels of the same positions give the right slope.
    """
    with trial.subject_fault():
        right = _copied(trial.subject.gradients(inputs, labels))
        teacher = trial.subject.teacher_logits(inputs)
        change = _STEP * _loss(trial, trial.subject.student_logits(inputs), teacher, labels)
    trial.measure(
        slope_error=_slope_error(trial, inputs, right, lambda student: _loss(trial, student, teacher, labels), change)
    )
    drawn = torch.randint(teacher.shape[-1], (3, *inputs.shape), generator=torch.Generator().manual_seed(_SEED))
    inputs, labels, others = drawn.to(inputs.device)
    with trial.subject_fault():
        right = _copied(trial.subject.gradients(inputs, labels))
        wrong = trial.subject.gradients(inputs, others)
        by_labels = {name: one - wrong[name] for name, one in right.items()}
        del right, wrong
        teacher = trial.subject.teacher_logits(inputs)

    def difference(student: Tensor) -> float:
        return _loss(trial, student, teacher, labels) - _loss(trial, student, teacher, others)

    trial.measure(slope_error_by_labels=_slope_error(trial, inputs, by_labels, difference, change))


def _slope_error(
    trial: Trial[Gradients],
    inputs: Tensor,
    gradient: Mapping[str, Tensor],
    loss: Callable[[Tensor], float],
    change: float,
) -> float:
    """The relative difference of the loss's slope along a gradient from that gradient's norm; NaN if that is 0.

    The slope is that between two students, a little to both sides of this one, where the loss should differ by twice
    the `change`; `loss` takes a student's logits on the inputs.
    """
    with trial.subject_fault():
        live = {name: weight.detach() for name, weight in trial.subject.student_weights().items()}
    norm = sum(float(one.double().square().sum()) for one in gradient.values()) ** 0.5
    if norm == 0.0:
        return math.nan

    def beside(distance: float) -> float:
        moved = {name: weight + (distance / norm * gradient[name]).to(weight) for name, weight in live.items()}
        with trial.subject_fault():
            return loss(trial.subject.student_logits(inputs, moved))

    step = change / norm
    return abs((beside(step) - beside(-step)) / (2 * change) - 1.0)


def _copied(gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradients as they are now."""
    return {name: one.detach().clone() for name, one in gradients.items()}


def _loss(trial: Trial[Gradients], student: Tensor, teacher: Tensor, labels: Tensor) -> float:
    """The loss that the parameters ask for, of logits [rows, sequence, vocabulary], in float64, row by row."""
    alpha, temperature = trial.parameters["alpha"], trial.parameters["temperature"]
    return fmean(
        alpha * float(surprise(mine, answers))
        + (1 - alpha) * temperature**2 * float(divergence(one, mine, temperature))
        for one, mine, answers in zip(teacher, student, labels, strict=True)
    )


def _flat(gradients: Mapping[str, Tensor]) -> Tensor:
    """All gradients as one float64 vector, in the order of their names."""
    if not gradients:
        raise NotMeasured("this subject shows no gradients")
    return torch.cat([gradients[name].detach().double().flatten() for name in sorted(gradients)])
