"""The loss of a head and its gradients in float64, by torch's cross-entropy and autograd on all logits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from falsifiers.nanochat.subject import Question


@dataclass(frozen=True)
class Truth:
    """The expected answer.

    Attributes:
        loss: float64; a scalar, or [rows].
        loss_size: for each loss, the sum of the absolute values of its terms: the scale of its rounding error.
        grad_hidden, grad_weight: the gradients, float64.
        hidden_size, weight_size: for each element of the gradients, the sum of the absolute values of its terms. Two
            kinds
            of terms count as larger, because their relative error is larger: those much smaller than the largest of a
            row, and, in half precision, differences of nearly equal softmax and target.
    """

    loss: Tensor
    loss_size: Tensor
    grad_hidden: Tensor
    grad_weight: Tensor
    hidden_size: Tensor
    weight_size: Tensor


def truth(question: Question) -> Truth:
    """Evaluate the definition; the inputs' numbers are taken as exact."""
    hidden, weight = (tensor.detach().double() for tensor in (question.hidden, question.weight))
    raw = (hidden @ weight.T).requires_grad_()
    logits = question.softcap * torch.tanh(raw / question.softcap) if question.softcap else raw
    counts = (question.targets != question.ignore_index).double()
    log_sums = logits.logsumexp(dim=-1)
    rows = counts * question.z_loss * log_sums**2 + torch.nn.functional.cross_entropy(
        logits,
        question.targets,
        ignore_index=question.ignore_index,
        label_smoothing=question.label_smoothing,
        reduction="none",
    )
    sizes = counts * ((1.0 + question.z_loss * log_sums.abs()) * log_sums.abs() + logits.abs().amax(dim=-1))
    of_logits, loss, size = _reduced(question, rows, sizes, raw)
    limits, upstream = torch.finfo(question.hidden.dtype), question.upstream.abs().double() / _count(question)
    largest = upstream.max() if len(hidden) else 0.0
    parts = of_logits.abs().clamp_min(limits.tiny * largest)
    if limits.bits < 32:  # softmax and target are computed in float32
        terms = upstream.expand(len(hidden))[:, None] * _terms(question, logits.detach())
        parts = parts.maximum(terms * torch.finfo(torch.float32).eps / limits.eps)
    return Truth(
        loss.detach(), size.detach(), of_logits @ weight, of_logits.T @ hidden,
        parts @ weight.abs(), parts.T @ hidden.abs(),
    )  # fmt: skip


def _terms(question: Question, logits: Tensor) -> Tensor:
    """Return softmax minus target for each logit, and the scale of its rounding error in float32.

    An exponential has the error of its exponent, a difference of numbers as large as the largest logit.
    """
    rows = question.targets != question.ignore_index
    targets = torch.full_like(logits, question.label_smoothing / logits.shape[1])
    targets[rows, question.targets[rows]] += 1.0 - question.label_smoothing
    by_z_loss = 1.0 + 2.0 * question.z_loss * logits.logsumexp(dim=-1, keepdim=True).abs()
    by_exponent = 1.0 + logits.abs().amax(dim=-1, keepdim=True)
    return rows[:, None] * (logits.softmax(dim=-1) * by_z_loss * by_exponent + targets)


def _reduced(question: Question, rows: Tensor, sizes: Tensor, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient of the logits, the loss, and the size of its terms."""
    if question.reduction == "none":
        loss, size = rows, sizes
    else:
        loss, size = rows.sum() / _count(question), sizes.sum() / _count(question)
    (of_logits,) = torch.autograd.grad(loss, raw, question.upstream.double())
    return of_logits, loss, size


def _count(question: Question) -> int:
    """Return the divisor of the sum over the rows."""
    return max(1, int((question.targets != question.ignore_index).sum())) if question.reduction == "mean" else 1
