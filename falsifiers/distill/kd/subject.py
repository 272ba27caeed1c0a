"""What the falsifiers of the loss need from a subject: a function from hidden states to a loss and its gradients.

The inputs are hidden states and output heads, because fused losses never compute all logits. A loss of logits needs the
product and autograd in front of it (see `falsifiers.distill.reference.kd`).
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

IGNORED = -100
"""The label of a position that neither the cross entropy nor the divergence counts."""


@dataclass(frozen=True)
class Question:
    """The inputs of one call.

    Attributes:
        student: hidden states [rows, width] before the student's head.
        student_head: [vocabulary, width]; the student's logits are `student @ student_head.T`.
        teacher, teacher_head: hidden states and head of the teacher, whose width may differ.
        labels: token ids [rows], int64; rows with the label IGNORED do not count.
        alpha: weight of the cross entropy; the divergence has `(1 - alpha) * temperature ** 2`.
        temperature: divides both logits in the divergence.
        upstream: the gradient of a later loss with respect to this one, such as the factor of a gradient scaler.
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
    """The subject's answer.

    Attributes:
        loss: a scalar in nats per token that counts, without `upstream`; 0 if no token counts.
        student_gradient: of `upstream * loss` with respect to the hidden states [rows, width].
        head_gradient: of `upstream * loss` with respect to the student's head [vocabulary, width].
    """

    loss: Tensor
    student_gradient: Tensor
    head_gradient: Tensor


class KdLoss(Protocol):
    """A distillation loss; built as `Subject(setting)`."""

    def __call__(self, question: Question) -> Answer:
        """Return the loss and its gradients."""
        ...
