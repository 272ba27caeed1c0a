"""Subjects with a defect in sharding.

They are classes, because on GPUs each rank is a process of its own, in which no patch is applied.
"""

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
    """Averages the logarithms of each rank's frequencies instead of the frequencies: Jensen's inequality."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        of_rank = [(tensor + self.config.eps).pow(self.p(step)).mean(dim=(0, 1)) for tensor in upper.values()]
        tokens = next(iter(upper.values()))[..., 0].numel() * _ranks()
        plain = torch.stack([tensor.sum() for tensor in of_rank]).sum()
        return plain, torch.stack([(tensor * torch.log2(1 + tokens * tensor)).sum() for tensor in of_rank]).sum()


class SumsWithoutGradient(Decomposition):
    """The sums are global, but their reduction passes no gradient to other ranks."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        plain, logarithmic = [], []
        for gate in upper.values():
            sums = (gate + self.config.eps).pow(self.p(step)).sum(dim=(0, 1))
            others = sums.detach().clone()
            if dist.is_initialized():
                dist.all_reduce(others)
            tokens = gate[..., 0].numel() * _ranks()
            frequency = (others - sums.detach() + sums) / tokens
            plain.append(frequency.sum())
            logarithmic.append((frequency * torch.log2(1 + tokens * frequency)).sum())
        return torch.stack(plain).sum(), torch.stack(logarithmic).sum()


class SourceGradientsSummed(Decomposition):
    """Sums the sources' gradients over ranks instead of averaging; Adam hides the scale, but its moments show it."""

    def average_gradients(self) -> None:
        super().average_gradients()
        for source in self.adversary.sources.values():
            if source.grad is not None:
                source.grad *= _ranks()


class WeightGradientsSummed(Decomposition):
    """Sums all gradients over ranks."""

    def averaged(self, gradient: Tensor) -> Tensor:
        return super().averaged(gradient) * _ranks()


class WeightGradientsKept(Decomposition):
    """Never reduces the gradients of the importance weights."""

    def average_gradients(self) -> None:
        kept = {
            name: importance_weight.grad.clone()
            for name, importance_weight in self.importance_weights().items()
            if importance_weight.grad is not None
        }
        super().average_gradients()
        for name, weight in self.importance_weights().items():
            weight.grad = kept.get(name)


class OwnSources(Decomposition):
    """Each rank draws its own initial sources."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.generator.manual_seed(self.rows.start)
        self.adversary = Adversary({name: self.first_source() for name in self.sites})


class RanksDrawAlike(Decomposition):
    """Each rank uses the random numbers of the first rank's rows."""

    def stochastic(self, tokens: Tensor, lower: Mapping[str, Tensor], clean: Tensor, step: int) -> Tensor:
        self.is_drawing = True
        value = super().stochastic(tokens, lower, clean, step)
        self.is_drawing = False
        return value

    @property
    def rows(self) -> range:
        """The rows of the batch, or the first rank's rows during drawing."""
        rows = super().rows
        return range(len(rows)) if getattr(self, "is_drawing", False) else rows


class EveryRankTheFirstRows(Decomposition):
    """Does not split the batch: every rank trains on the first rows."""

    @property
    def rows(self) -> range:
        return range(len(super().rows))
