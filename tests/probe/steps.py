"""Training steps that the tests probe."""

from __future__ import annotations

from collections.abc import Callable

import torch


def mlp(
    batch: int = 64, width: int = 1024, *, foreach: bool | None = None, fused: bool | None = None, device: str = "cuda"
) -> Callable[[], None]:
    """Two linear layers without biases, a GELU between them, and AdamW."""
    model = torch.nn.Sequential(
        torch.nn.Linear(width, 4 * width, bias=False, device=device),
        torch.nn.GELU(),
        torch.nn.Linear(4 * width, width, bias=False, device=device),
    )
    optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach, fused=fused)
    inputs = torch.randn(batch, width, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def reads_a_value() -> Callable[[], float]:
    """A step that depends on a number on the device."""
    weight = torch.randn(8, device="cuda", requires_grad=True)
    return lambda: weight.sum().item()
