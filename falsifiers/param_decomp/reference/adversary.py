"""Persistent adversarial sources: they and their Adam moments are kept across steps."""

from collections.abc import Mapping

import torch
from torch import Tensor

_BETAS = (0.5, 0.99)
_EPS = 1e-8


class Adversary:
    """One source [1, sequence, C + 1] per site, shared by all rows, in [0, 1]."""

    def __init__(self, sources: Mapping[str, Tensor]) -> None:
        self.sources = {name: source.requires_grad_() for name, source in sources.items()}
        self.slots: dict[str, dict[str, Tensor]] = {}

    @torch.no_grad()
    def ascend(self, gradients: Mapping[str, Tensor], rate: float) -> None:
        """One Adam step up the gradients of the adversarial term, then a clamp to [0, 1]."""
        for name, source in self.sources.items():
            slots = self.slots.setdefault(name, _zeros(source))
            slots["step"] += 1
            slots["exp_avg"].lerp_(gradients[name], 1 - _BETAS[0])
            slots["exp_avg_sq"].lerp_(gradients[name].square(), 1 - _BETAS[1])
            mean, square = (
                slots[key] / (1 - beta ** slots["step"])
                for key, beta in zip(("exp_avg", "exp_avg_sq"), _BETAS, strict=True)
            )
            source += rate * mean / (square.sqrt() + _EPS)
            source.clamp_(0.0, 1.0)


def _zeros(source: Tensor) -> dict[str, Tensor]:
    zeros = {key: torch.zeros_like(source, requires_grad=False) for key in ("exp_avg", "exp_avg_sq")}
    return {**zeros, "step": torch.zeros((), dtype=torch.float64, device=source.device)}
