"""The terms of the objective and the gates' gradients, from their formulas."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

ALPHA = 0.01
"""The slope of the gates in the regions where they leak (SPEC.md, section 4.2)."""


def divergence(masked: Tensor, clean: Tensor) -> Tensor:
    """KL(p || q) in nats, summed over tokens and averaged over positions: p of the clean, q of the masked logits."""
    p = clean - torch.logsumexp(clean, dim=-1, keepdim=True)
    q = masked - torch.logsumexp(masked, dim=-1, keepdim=True)
    positions = math.prod(clean.shape[:-1])
    return (p.exp() * (p - q)).sum() / positions


def faithfulness(weights: Mapping[str, Tensor], components: Mapping[str, Tensor]) -> Tensor:
    """The sum over sites of ||W - VU||^2, over the number of all their entries."""
    names = [name.removesuffix(".V") for name in components if name.endswith(".V")]
    squares = sum(((weights[name] - components[f"{name}.V"] @ components[f"{name}.U"]) ** 2).sum() for name in names)
    return torch.as_tensor(squares) / sum(weights[name].numel() for name in names)


def minimality(upper: Mapping[str, Tensor], p: float, eps: float) -> tuple[Tensor, Tensor]:
    """The sum over components of f = mean (importance + eps)^p, and the sum of f log2(1 + tokens f)."""
    plain = torch.zeros((), dtype=torch.float64)
    logarithmic = torch.zeros((), dtype=torch.float64)
    for importance in upper.values():
        tokens = math.prod(importance.shape[:-1])
        f = torch.exp(p * torch.log(importance + eps)).sum(dim=(0, 1)) / tokens
        plain = plain + f.sum()
        logarithmic = logarithmic + (f * torch.log(1 + tokens * f) / math.log(2.0)).sum()
    return plain, logarithmic


def lower_gate(logits: Tensor) -> Tensor:
    """Logits clamped to [0, 1]."""
    return torch.minimum(torch.maximum(logits, torch.zeros_like(logits)), torch.ones_like(logits))


def upper_gate(logits: Tensor) -> Tensor:
    """Logits clamped to [0, 1], with slope ALPHA above 1."""
    return lower_gate(logits) + ALPHA * torch.maximum(logits - 1, torch.zeros_like(logits))


def gate_gradient(logits: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The gradient of the logits, from the gradients of the gates.

    Lower: 1 on 0 < x <= 1; ALPHA at x <= 0 if the upstream gradient is negative; 0 above 1.
    Upper: 1 on [0, 1]; ALPHA above 1; 0 below 0.
    """
    waking, within, above = (logits <= 0) & (lower < 0), (logits > 0) & (logits <= 1), logits > 1
    of_lower = torch.where(within, lower, torch.where(waking, ALPHA * lower, 0.0))  # not 0 * NaN
    return of_lower + torch.where(within | (logits == 0), upper, torch.where(above, ALPHA * upper, 0.0))
