"""The distillation loss by its formula (SPEC-DISTILL-001): alpha * CE + (1 - alpha) * T^2 * KL(teacher || student)."""

from torch import Tensor


def summed_loss(student: Tensor, teacher: Tensor, labels: Tensor, alpha: float, temperature: float) -> Tensor:
    """The sum of the loss over all tokens, in nats: a scalar. The loss of a batch is this divided by `counted` tokens.

    Args:
        student, teacher: logits [..., vocabulary]; use float64.
        labels: token ids [...]; those below 0 do not count.
    """
    targets = labels.clamp_min(0).unsqueeze(-1)
    cross_entropy = student.logsumexp(-1) - student.gather(-1, targets).squeeze(-1)
    log_p, log_q = _log_softmax(teacher / temperature), _log_softmax(student / temperature)
    divergence = (log_p.exp() * (log_p - log_q)).sum(-1)
    return ((alpha * cross_entropy + (1.0 - alpha) * temperature**2 * divergence) * (labels >= 0)).sum()


def counted(labels: Tensor) -> int:
    """The number of tokens that count."""
    return int((labels >= 0).sum())


def _log_softmax(logits: Tensor) -> Tensor:
    return logits - logits.logsumexp(-1, keepdim=True)
