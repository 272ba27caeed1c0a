"""Checks that a distillation loss depends on its arguments alone and does not modify them."""

from typing import Any

import torch
from torch import Tensor

from falsifiers.distill.kd.subject import IGNORED, KdLoss, Question
from harness import Trial
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import STATE, StateCheck


def state_check(trial: Trial[KdLoss], *more: str) -> StateCheck:
    """The check of the trial's loss by the relations of state and more. Call it before CUDA is used."""
    subject = trial.subject

    def loss(*tensors: Tensor, **numbers: float) -> tuple[Tensor, Tensor, Tensor]:
        answer = subject(Question(*tensors, **numbers))
        return answer.loss, answer.student_gradient, answer.head_gradient

    rest: Any = {"dtypes": ("float32", "float64", "float16", "bfloat16"), "differentiable": False, "any_layout": True}
    return StateCheck(trial, loss, _formulas, kd_arguments, (*STATE, *more), **rest)


def kd_arguments(draw: Draw) -> Any:
    """Hidden states [rows, width] and heads [vocabulary, width] of student and teacher, labels, and the numbers."""
    rows, vocabulary = draw.size("rows"), draw.size("vocabulary")
    width, of_teacher = draw.size("width"), draw.size("teacher_width")
    tensors = (
        draw.tensor(rows, width),
        draw.tensor(vocabulary, width),
        draw.tensor(rows, of_teacher),
        draw.tensor(vocabulary, of_teacher),
        draw.index(rows, below=vocabulary, also=(IGNORED,)),
    )
    return tensors, {
        "alpha": draw.choice("alpha", 0.3, 0.8),
        "temperature": draw.choice("temperature", 2.0, 1.0, 0.5),
        "upstream": draw.choice("upstream", 1.0, 0.0, -3.0),
    }


def _formulas(
    student: Tensor,
    student_head: Tensor,
    teacher: Tensor,
    teacher_head: Tensor,
    labels: Tensor,
    *,
    alpha: float,
    temperature: float,
    upstream: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and gradients by the formulas of `falsifiers.distill.kd.formulas`, in the dtype of the inputs.

    A NaN at an ignored position leaves the loss as it is; it may reach a gradient.
    """
    logits, teacher_logits = student @ student_head.T, teacher @ teacher_head.T
    counts, targets = labels != IGNORED, labels.clamp_min(0).unsqueeze(-1)
    rows = counts.sum().clamp_min(1)
    log_q, log_p = (logits / temperature).log_softmax(-1), (teacher_logits / temperature).log_softmax(-1)
    surprises = -logits.log_softmax(-1).gather(-1, targets).squeeze(-1)
    divergences = (log_p.exp() * (log_p - log_q)).sum(-1)
    losses = alpha * surprises + (1.0 - alpha) * temperature**2 * divergences
    hard = logits.softmax(-1) - torch.zeros_like(logits).scatter(-1, targets, 1.0)
    slopes = alpha * hard + (1.0 - alpha) * temperature * (log_q.exp() - log_p.exp())
    slopes = slopes * counts.unsqueeze(-1) * upstream / rows
    return torch.where(counts, losses, 0.0).sum() / rows, slopes @ student_head, slopes.T @ student
