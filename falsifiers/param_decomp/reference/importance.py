"""Causal importances: the two leaky gates, and the transformer that predicts their logits from a residual stream.

SPEC.md of the decomposition, sections 4.2 and 4.6.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from falsifiers.param_decomp.configuration import Configuration
from falsifiers.param_decomp.reference.target import rotated, rotations

ALPHA = 0.01
"""The slope of both gates in the regions where they leak."""
_ROPE_BASE = 10000.0


class _LowerLeaky(torch.autograd.Function):
    """clamp(x, 0, 1), whose gradient below 0 can only increase the importance."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x.clamp(0.0, 1.0)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        below = torch.where(gradient < 0, ALPHA * gradient, 0.0)
        return torch.where(x <= 0, below, torch.where(x <= 1, gradient, 0.0))


def lower_leaky(logits: Tensor) -> Tensor:
    """The gate of the masks: clamped to [0, 1]; below 0 it passes gradients that would increase it."""
    return _LowerLeaky.apply(logits)


def upper_leaky(logits: Tensor) -> Tensor:
    """The gate of importance minimality: clamped to [0, 1], with slope ALPHA above 1."""
    return torch.where(logits > 1, 1 + ALPHA * (logits - 1), logits.clamp(0.0, 1.0))


class _Block(nn.Module):
    """Bidirectional attention and an MLP, both after norms without weights."""

    def __init__(self, config: Configuration) -> None:
        super().__init__()
        width = config.importance_width
        self.heads = config.importance_heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up = nn.Linear(width, config.importance_hidden)
        self.down = nn.Linear(config.importance_hidden, width)

    def forward(self, h: Tensor) -> Tensor:
        """The stream [rows, sequence, width] after this block."""
        rotation = rotations(h, h.shape[-1] // self.heads, _ROPE_BASE)
        x = _normed(h)
        q, k, v = (
            projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for projection in (self.q, self.k, self.v)
        )
        attended = functional.scaled_dot_product_attention(rotated(q, rotation), rotated(k, rotation), v)
        h = h + self.o(attended.transpose(1, 2).flatten(2))
        return h + self.down(functional.gelu(self.up(_normed(h))))


class ImportanceModel(nn.Module):
    """Predicts the importance logits of all sites from the residual stream before the first decomposed layer."""

    def __init__(self, config: Configuration, sites: list[str]) -> None:
        super().__init__()
        self.sites = sites
        self.components = config.components
        self.input = nn.Linear(config.hidden, config.importance_width)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.importance_blocks))
        self.output = nn.Linear(config.importance_width, len(sites) * config.components)

    def forward(self, residual: Tensor) -> dict[str, Tensor]:
        """Logits [rows, sequence, C] by site, for a residual stream [rows, sequence, hidden]."""
        h = self.input(_normed(residual))
        for block in self.blocks:
            h = block(h)
        return dict(zip(self.sites, self.output(h).split(self.components, dim=-1), strict=True))


def _normed(x: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], eps=torch.finfo(torch.float32).eps)
