"""The loss for the training of the student."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor

IGNORED = -100
"""The label of a position that does not count, as in `torch.nn.functional.cross_entropy`."""


def distillation_loss(student: Tensor, teacher: Tensor, labels: Tensor, *, alpha: float, temperature: float) -> Tensor:
    """`alpha * CE + (1 - alpha) * T^2 * KL(teacher || student)`, both averaged over the tokens that count, in nats.

    The factor T^2 makes the size of the divergence's gradient independent of the temperature
    (Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015, section 2). The weights are those
    of SPEC-DISTILL-001; other trainers exchange the roles of alpha and 1 - alpha.

    Args:
        student, teacher: logits [batch, sequence, vocabulary]; half precision is converted to float32.
        labels: token ids [batch, sequence]; if no token counts, the loss is 0.
    """
    student, teacher, labels = _precise(student.flatten(0, -2)), _precise(teacher.flatten(0, -2)), labels.flatten()
    counts = labels != IGNORED
    tokens = counts.sum().clamp_min(1)
    cross_entropy = F.cross_entropy(student, labels, ignore_index=IGNORED, reduction="sum")
    log_q = F.log_softmax(student / temperature, dim=-1)
    log_p = F.log_softmax(teacher / temperature, dim=-1)
    divergences = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=-1)
    divergence = torch.where(counts, divergences, 0.0).sum()
    return (alpha * cross_entropy + (1 - alpha) * temperature**2 * divergence) / tokens


def _precise(logits: Tensor) -> Tensor:
    """Logits in float32 or better: with eight bits of mantissa, a divergence would be mostly rounding error."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
