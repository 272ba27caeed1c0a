"""Subjects that put ranks together wrongly: one known defect each.

They are classes, because on GPUs the ranks are processes of their own, which see no patch.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from falsifiers.param_decomp.reference.adversary import Adversary
from falsifiers.param_decomp.reference.trainer import Decomposition
from harness import Setting


def _ranks() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


class LocalFrequencies(Decomposition):
    """Each rank takes the logarithm of its own frequencies, and the results are averaged: Jensen's inequality."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """Of this rank's rows."""
        found = [(one + self.config.eps).pow(self.p(step)).mean(dim=(0, 1)) for one in upper.values()]
        tokens = next(iter(upper.values()))[..., 0].numel() * _ranks()
        plain = torch.stack([one.sum() for one in found]).sum()
        return plain, torch.stack([(one * torch.log2(1 + tokens * one)).sum() for one in found]).sum()


class SumsWithoutGradient(Decomposition):
    """The sums are global, and their reduction passes no gradient to other ranks."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """With this rank's share of the gradient."""
        plain, logarithmic = [], []
        for one in upper.values():
            sums = (one + self.config.eps).pow(self.p(step)).sum(dim=(0, 1))
            others = sums.detach().clone()
            if dist.is_initialized():
                dist.all_reduce(others)
            tokens = one[..., 0].numel() * _ranks()
            frequency = (others - sums.detach() + sums) / tokens
            plain.append(frequency.sum())
            logarithmic.append((frequency * torch.log2(1 + tokens * frequency)).sum())
        return torch.stack(plain).sum(), torch.stack(logarithmic).sum()


class SourceGradientsSummed(Decomposition):
    """The sources' gradients are summed over ranks, not averaged; Adam hides the scale, but not from its moments."""

    def average_gradients(self) -> None:
        """Times the ranks."""
        super().average_gradients()
        for source in self.adversary.sources.values():
            if source.grad is not None:
                source.grad *= _ranks()


class WeightGradientsSummed(Decomposition):
    """All gradients are summed over ranks."""

    def averaged(self, gradient: Tensor) -> Tensor:
        """Times the ranks."""
        return super().averaged(gradient) * _ranks()


class WeightGradientsKept(Decomposition):
    """The importance weights' gradients are never reduced."""

    def average_gradients(self) -> None:
        """Those of this rank remain."""
        kept = {name: one.grad.clone() for name, one in self.importance_weights().items() if one.grad is not None}
        super().average_gradients()
        for name, one in self.importance_weights().items():
            one.grad = kept.get(name)


class OwnSources(Decomposition):
    """Each rank draws its own first sources."""

    def __init__(self, setting: Setting) -> None:
        """From a seed of its rows."""
        super().__init__(setting)
        self.generator.manual_seed(self.rows.start)
        self.adversary = Adversary({name: self.first_source() for name in self.sites})


class RanksDrawAlike(Decomposition):
    """Every rank has the random numbers of the first one's rows."""

    def stochastic(self, tokens: Tensor, lower: Mapping[str, Tensor], clean: Tensor, step: int) -> Tensor:
        """With the first rows' streams."""
        self.is_drawing = True
        value = super().stochastic(tokens, lower, clean, step)
        self.is_drawing = False
        return value

    @property
    def rows(self) -> range:
        """Those of the batch, but the first ones while something is drawn."""
        rows = super().rows
        return range(len(rows)) if getattr(self, "is_drawing", False) else rows


class EveryRankTheFirstRows(Decomposition):
    """The batch is not split: every rank trains on the first rows."""

    @property
    def rows(self) -> range:
        """The first ones."""
        return range(len(super().rows))
