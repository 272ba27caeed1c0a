"""The distillation loss and its gradients in float64, from the definition; shares no code with a subject.

    L = alpha * CE(s, y) + (1 - alpha) * T^2 * KL(softmax(t / T) || softmax(s / T)),  mean over the rows that count
    dL/ds = (alpha * (softmax(s) - onehot(y)) + (1 - alpha) * T * (softmax(s / T) - softmax(t / T))) / rows that count

Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network" (2015), section 2; the weights are those of
SPEC-DISTILL-001, where other trainers exchange alpha and 1 - alpha.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from falsifiers.distill.kd.subject import IGNORED, Question
from falsifiers.distill.measuring.held_out import log_probabilities


@dataclass(frozen=True)
class Truth:
    """The expected answer.

    Attributes:
        loss: in nats per row that counts.
        magnitude: the sum of the absolute values of the loss's terms, and of logits times the derivative of the loss by
            them. It is the scale of the rounding error of the loss in any dtype.
        student_gradient, head_gradient: of `upstream * loss`, float64.
        largest: for each of the two gradients, an upper bound of its elements.
        sizes: for each of the two gradients, its largest element if all its terms had one sign. It is the scale of the
            rounding error in the inputs' dtype. Subnormal terms count as larger, because they have fewer digits.
    """

    loss: float
    magnitude: float
    student_gradient: Tensor
    head_gradient: Tensor
    largest: tuple[float, float]
    sizes: tuple[float, float]


def truth(question: Question, *, divergence_weight: float | None = None) -> Truth:
    """Evaluate the formulas.

    Args:
        question: in any dtype; its numbers are taken as exact.
        divergence_weight: replaces `(1 - alpha) * T^2` for losses of another convention.
    """
    alpha, temperature = question.alpha, question.temperature
    weight = (1.0 - alpha) * temperature**2 if divergence_weight is None else divergence_weight
    student, head = question.student.double(), question.student_head.double()
    logits, teacher_logits = student @ head.T, question.teacher.double() @ question.teacher_head.double().T
    counts = question.labels != IGNORED
    labels = question.labels.clamp_min(0).unsqueeze(-1)
    rows = max(1, int(counts.sum()))

    log_q, log_p = log_probabilities(logits, temperature), log_probabilities(teacher_logits, temperature)
    p = log_p.exp()
    surprises = -log_probabilities(logits).gather(-1, labels).squeeze(-1)
    divergences = (p * (log_p - log_q)).sum(dim=-1)
    magnitudes = alpha * surprises + weight * (p * (log_p.abs() + log_q.abs())).sum(dim=-1)
    # How much an error of a logit changes the loss at most: a logit is only exact relative to its size.
    magnitudes += (alpha + weight / temperature) * (logits.abs().amax(dim=-1) + teacher_logits.abs().amax(dim=-1))

    gradient = alpha * log_probabilities(logits).exp() + weight / temperature * (log_q.exp() - p)
    gradient.scatter_add_(-1, labels, torch.full_like(surprises, -alpha).unsqueeze(-1))
    gradient *= (question.upstream / rows) * counts.double().unsqueeze(-1)
    bound = abs(question.upstream) * (alpha + weight / temperature)
    tiny = torch.finfo(question.student.dtype).tiny * max(1.0, abs(question.upstream))
    sizes = gradient.abs().clamp_min(tiny)
    return Truth(
        loss=float(((alpha * surprises + weight * divergences) * counts).sum() / rows),
        magnitude=float((magnitudes * counts).sum() / rows),
        student_gradient=gradient @ head,
        head_gradient=gradient.T @ student,
        largest=(bound / rows * float(head.abs().max()), bound * float(student.abs().max())),
        sizes=(float((sizes @ head.abs()).max()), float((sizes.T @ student.abs()).max())),
    )
