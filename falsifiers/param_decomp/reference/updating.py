"""AdamW's update of components, in place or into new memory."""

from collections.abc import Mapping

import torch
from torch import Tensor

from harness import Setting

_BETAS, _EPS, _RATE = (0.9, 0.999), 1e-8, 1.5e-4


class Updates:
    """Tensors of equal size, each with a gradient and two moments."""

    def __init__(self, setting: Setting) -> None:
        generator = torch.Generator().manual_seed(setting.seed)
        size = setting.parameters["numbers"]

        def drawn() -> Tensor:
            return torch.randn(size, generator=generator).to(setting.device)

        names = range(setting.parameters["tensors"])
        self.gradients = [drawn() for _ in names]
        self.tensors = [(drawn(), drawn() * 0.01, drawn().square() * 0.01) for _ in names]

    def state(self) -> Mapping[str, Tensor]:
        kinds = ("weight", "exp_avg", "exp_avg_sq")
        return {
            f"{kind}.{place}": moment
            for place, three in enumerate(self.tensors)
            for kind, moment in zip(kinds, three, strict=True)
        }

    def update_donating(self) -> None:
        for (weight, first, second), gradient in zip(self.tensors, self.gradients, strict=True):
            first.mul_(_BETAS[0]).add_(gradient, alpha=1 - _BETAS[0])
            second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
            weight.addcdiv_(first, second.sqrt().add_(_EPS), value=-_RATE)

    def update_keeping(self) -> None:
        """As a compiled step without donation: all new tensors are computed before the old ones are freed."""
        updated = []
        for (weight, first, second), gradient in zip(self.tensors, self.gradients, strict=True):
            first = (first * _BETAS[0]).add_(gradient, alpha=1 - _BETAS[0])
            second = (second * _BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
            updated.append((torch.addcdiv(weight, first, second.sqrt().add_(_EPS), value=-_RATE), first, second))
        self.tensors = updated
