"""What the falsifiers of the loss need from a subject: one function from hidden states to a loss and its gradients.

Hidden states and output heads, not logits, because fused losses never make all logits; a loss of logits fits behind it
as well, with the product and autograd before it (see `falsifiers.distill.reference.kd`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

__all__ = ["IGNORED", "Answer", "KdLoss", "Question"]

IGNORED = -100
"""The label of a position that counts neither for the cross entropy nor for the divergence."""


@dataclass(frozen=True)
class Question:
    """Inputs of one call.

    Attributes:
        student: hidden states [rows, width] before the student's head.
        student_head: [vocabulary, width]; the student's logits are `student @ student_head.T`.
        teacher, teacher_head: the same of the teacher, whose width may differ.
        labels: token ids [rows], int64; IGNORED ones do not count.
        alpha: weight of the cross entropy; the divergence has `(1 - alpha) * temperature ** 2`.
        temperature: divides both logits in the divergence.
        upstream: the gradient of some later loss with respect to this one: a gradient scaler's factor, say.
    """

    student: Tensor
    student_head: Tensor
    teacher: Tensor
    teacher_head: Tensor
    labels: Tensor
    alpha: float
    temperature: float
    upstream: float = 1.0


@dataclass(frozen=True)
class Answer:
    """What the subject made of it.

    Attributes:
        loss: a scalar in nats a token that counts, not multiplied by `upstream`; 0 where no token counts.
        student_gradient: of `upstream * loss` with respect to the hidden states [rows, width].
        head_gradient: with respect to the student's head [vocabulary, width].
    """

    loss: Tensor
    student_gradient: Tensor
    head_gradient: Tensor


class KdLoss(Protocol):
    """A distillation loss; built as `Subject(setting)`."""

    def __call__(self, question: Question) -> Answer:
        """The loss and its gradients."""
        ...
