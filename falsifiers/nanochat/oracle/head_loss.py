"""The loss of a head and its gradients in float64, by torch's own cross-entropy and autograd over whole logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from falsifiers.nanochat.subject import Question

__all__ = ["Truth", "truth"]


@dataclass(frozen=True)
class Truth:
    """What the answer should be.

    Attributes:
        loss: float64; a scalar, or [rows].
        loss_size: the sum of the sizes of the terms of the loss, for each loss: how exact it can be in any dtype.
        of_hidden, of_weight: float64.
        hidden_size, weight_size: for each element of the gradients, the sum of the sizes of its parts. Two kinds of
            parts count as larger, because they cannot be as exact: those that are tiny next to the largest that a row
            may have, and, in half precision, differences of a softmax and a target that are nearly equal.
    """

    loss: Tensor
    loss_size: Tensor
    of_hidden: Tensor
    of_weight: Tensor
    hidden_size: Tensor
    weight_size: Tensor


def truth(asked: Question) -> Truth:
    """Evaluate the definition, taking the inputs as the exact numbers that they are."""
    hidden, weight = (one.detach().double() for one in (asked.hidden, asked.weight))
    raw = (hidden @ weight.T).requires_grad_()
    logits = asked.softcap * torch.tanh(raw / asked.softcap) if asked.softcap else raw
    counts = (asked.targets != asked.ignore_index).double()
    log_sums = logits.logsumexp(dim=-1)
    rows = counts * asked.z_loss * log_sums**2 + torch.nn.functional.cross_entropy(
        logits, asked.targets, ignore_index=asked.ignore_index, label_smoothing=asked.label_smoothing, reduction="none"
    )
    sizes = counts * ((1.0 + asked.z_loss * log_sums.abs()) * log_sums.abs() + logits.abs().amax(dim=-1))
    of_logits, loss, size = _reduced(asked, rows, sizes, raw)
    limits, upstream = torch.finfo(asked.hidden.dtype), asked.upstream.abs().double() / _count(asked)
    largest = upstream.max() if len(hidden) else 0.0
    parts = of_logits.abs().clamp_min(limits.tiny * largest)
    if limits.bits < 32:  # softmax and target are computed in float32
        terms = upstream.expand(len(hidden))[:, None] * _terms(asked, logits.detach())
        parts = parts.maximum(terms * torch.finfo(torch.float32).eps / limits.eps)
    return Truth(
        loss.detach(), size.detach(), of_logits @ weight, of_logits.T @ hidden,
        parts @ weight.abs(), parts.T @ hidden.abs(),
    )  # fmt: skip


def _terms(asked: Question, logits: Tensor) -> Tensor:
    """Return what the gradient of a row's loss is a difference of, softmax and target, by how exact float32 makes them.

    An exponential is as exact as its exponent, which is a difference of numbers as large as the largest logit.
    """
    rows = asked.targets != asked.ignore_index
    targets = torch.full_like(logits, asked.label_smoothing / logits.shape[1])
    targets[rows, asked.targets[rows]] += 1.0 - asked.label_smoothing
    by_z_loss = 1.0 + 2.0 * asked.z_loss * logits.logsumexp(dim=-1, keepdim=True).abs()
    by_exponent = 1.0 + logits.abs().amax(dim=-1, keepdim=True)
    return rows[:, None] * (logits.softmax(dim=-1) * by_z_loss * by_exponent + targets)


def _reduced(asked: Question, rows: Tensor, sizes: Tensor, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient of the logits, the loss, and the size of its terms."""
    if asked.reduction == "none":
        loss, size = rows, sizes
    else:
        loss, size = rows.sum() / _count(asked), sizes.sum() / _count(asked)
    (of_logits,) = torch.autograd.grad(loss, raw, asked.upstream.double())
    return of_logits, loss, size


def _count(asked: Question) -> int:
    """Return what the sum over the rows is divided by."""
    return max(1, int((asked.targets != asked.ignore_index).sum())) if asked.reduction == "mean" else 1
