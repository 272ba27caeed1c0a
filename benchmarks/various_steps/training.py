"""The loop that the steps of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Step", "block", "made", "training"]

Step = Callable[[], Any]


def training(
    weights: nn.Module | Iterable[Tensor],
    loss: Callable[[], Tensor],
    optimizer: Any = torch.optim.AdamW,
    **options: Any,
) -> Step:
    """A step that computes a loss, runs backward and updates the weights."""
    chosen = weights.parameters() if isinstance(weights, nn.Module) else weights
    update = optimizer([parameter for parameter in chosen if parameter.requires_grad], **{"lr": 1e-3, **options})

    def step() -> None:
        update.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        update.step()

    return step


def made(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    """Random numbers on the GPU."""
    return torch.randn(shape, device="cuda", dtype=dtype).requires_grad_(grad)


def block(width: int, dropout: float = 0.0) -> nn.Sequential:
    """Two linear layers around a GELU, after a normalization."""
    inner = nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
    return nn.Sequential(nn.LayerNorm(width), *inner)
