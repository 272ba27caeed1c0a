"""Steps for `harness roofline benchmarks.roofline_steps:nanochat`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from falsifiers.nanochat.reference.model import Gpt, Shape, plain_loss
from falsifiers.nanochat.reference.paths import fused_loss

__all__ = ["nanochat"]


def nanochat(
    layers: int = 20,
    rows: int = 8,
    sequence: int = 2048,
    width: int = 1280,
    vocabulary: int = 65_536,
    loss: str = "fused",
    compiled: bool = False,
) -> Callable[[], None]:
    """Return a step of nanochat in bfloat16 with AdamW, of d20 by default; on the CPU where there is no GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = Shape(layers=layers, width=width, heads=width // 128, vocabulary=vocabulary, sequence=sequence)
    with torch.device(device):
        model = Gpt(shape, {"fused": fused_loss, "plain": plain_loss}[loss]).to(torch.bfloat16)
        tokens = torch.randint(vocabulary, (rows, sequence + 1))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    forward = torch.compile(model) if compiled else model

    def step() -> None:
        optimizer.zero_grad()
        forward(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()

    return step
