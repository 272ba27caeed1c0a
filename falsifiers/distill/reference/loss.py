"""The loss that the student is trained on."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor

__all__ = ["distillation_loss"]


def distillation_loss(student: Tensor, teacher: Tensor, labels: Tensor, *, alpha: float, temperature: float) -> Tensor:
    """`alpha * CE + (1 - alpha) * T^2 * KL(teacher || student)`, both terms averaged over the tokens, in nats.

    The factor T^2 keeps the divergence's gradient at the size of the cross entropy's whatever the temperature
    (Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015, section 2). The weights are those
    of SPEC-DISTILL-001; other trainers exchange the roles of alpha and 1 - alpha.

    Args:
        student, teacher: logits [batch, sequence, vocabulary].
        labels: token ids [batch, sequence].
    """
    student, teacher = student.flatten(0, -2), teacher.flatten(0, -2)
    cross_entropy = F.cross_entropy(student, labels.flatten())
    divergence = F.kl_div(
        F.log_softmax(student / temperature, dim=-1),
        F.log_softmax(teacher / temperature, dim=-1),
        reduction="batchmean",
        log_target=True,
    )
    return alpha * cross_entropy + (1 - alpha) * temperature**2 * divergence
