"""Steps that read something else than the next tokens of rows that were moved, or round their logits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from falsifiers.nanochat.reference.model import IGNORED, SOFTCAP, HeadLoss
from falsifiers.nanochat.reference.paths import KernelPaths
from falsifiers.nanochat.subject import Batch, Parts

__all__ = ["NotMoved", "OtherTargets", "RoundedLogits"]


class OtherTargets(KernelPaths):
    """Targets are shifted along the wrong axis."""

    def forward(self, model: torch.nn.Module, given: Batch) -> Tensor:
        """Give each row the targets of the row before it."""
        return super().forward(model, Batch(given.tokens, given.targets.roll(1, 0)))


class NotMoved(KernelPaths):
    """What was moved is not used."""

    batch_in_place: Batch

    def parts(
        self, path: str, given: Batch, steps: int, synchronize: Callable[[], object], clock: Callable[[], float]
    ) -> Parts:
        """Keep the batch."""
        self.batch_in_place = given
        return super().parts(path, given, steps, synchronize, clock)

    def forward(self, model: torch.nn.Module, given: Batch) -> Tensor:
        """Read the tokens where they were."""
        return super().forward(model, Batch(self.batch_in_place.tokens, given.targets))


class RoundedLogits(KernelPaths):
    """Logits have the model's dtype."""

    def loss(self, path: str) -> HeadLoss:
        """Give every path whole logits that are not widened."""
        return _rounded


def _rounded(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logits = SOFTCAP * torch.tanh(hidden @ weight.T / SOFTCAP)
    return cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)
