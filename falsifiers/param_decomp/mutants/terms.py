"""Subjects whose terms of the objective are other ones: one known defect each."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.param_decomp.reference import Decomposition, losses

__all__ = [
    "AnnealedEarly",
    "CoefficientOfOneChunk",
    "CrossEntropy",
    "DeltaAdded",
    "EpsClamped",
    "EpsHardCoded",
    "EpsOutside",
    "HalfPrecisionSoftmax",
    "HalfPrecisionSum",
    "LowerGateCounted",
    "MeanOfSiteMeans",
    "MeanOverComponents",
    "MergedSites",
    "NaturalLogarithm",
    "NormNotSquared",
    "OneSiteForgotten",
    "PerRow",
    "PerToken",
    "ReversedKl",
    "RowsForTokens",
    "StuckP",
    "SummedChunks",
    "SummedSquares",
    "UntrainedU",
    "WeightedBySites",
]


class CoefficientOfOneChunk(Decomposition):
    """0.5 was kept when the sum over chunks became a mean: a third of every gradient."""

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """The stochastic term by a third of its coefficient."""
        return super().total({**terms, "stochastic": terms["stochastic"] / len(self.chunks())})


class SummedChunks(Decomposition):
    """The sum over chunks by the coefficient of their mean."""

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """Three times as much."""
        return super().total({**terms, "stochastic": terms["stochastic"] * len(self.chunks())})


class WeightedBySites(Decomposition):
    """The mean over sites instead of forwards: a ninth."""

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """Divided by the sites of a chunk."""
        return super().total({**terms, "stochastic": terms["stochastic"] / self.config.sites_per_chunk})


class MeanOfSiteMeans(Decomposition):
    """The mean of each site's own mean: small sites weigh as much as large ones."""

    def faithfulness(self) -> Tensor:
        """Equal only if all sites have one size."""
        return torch.stack([site.delta().square().mean() for site in self.sites.values()]).mean()


class SummedSquares(Decomposition):
    """The sum of squares, not divided by the number of entries."""

    def faithfulness(self) -> Tensor:
        """The sum."""
        return torch.stack([site.delta().square().sum() for site in self.sites.values()]).sum()


class NormNotSquared(Decomposition):
    """The norm of each residual instead of its square."""

    def faithfulness(self) -> Tensor:
        """Over the number of all entries."""
        norms = torch.stack([site.delta().norm() for site in self.sites.values()])
        return norms.sum() / sum(site.W.numel() for site in self.sites.values())


class OneSiteForgotten(Decomposition):
    """The last site is left out of faithfulness."""

    def faithfulness(self) -> Tensor:
        """Of all but one."""
        return losses.faithfulness(list(self.sites.values())[:-1])


class DeltaAdded(Decomposition):
    """The residual is W + VU: the components learn the negative of the weight."""

    def faithfulness(self) -> Tensor:
        """Of the wrong residual."""
        residuals = [site.W + site.V @ site.U for site in self.sites.values()]
        return torch.stack([one.square().sum() for one in residuals]).sum() / sum(one.numel() for one in residuals)


class UntrainedU(Decomposition):
    """The residual is made of a detached U: faithfulness trains V alone."""

    def faithfulness(self) -> Tensor:
        """The same value, and no gradient for U."""
        deltas = [site.W - site.V @ site.U.detach() for site in self.sites.values()]
        return torch.stack([one.square().sum() for one in deltas]).sum() / sum(one.numel() for one in deltas)


class ReversedKl(Decomposition):
    """KL(masked || clean): the arguments are exchanged."""

    def divergence(self, masked: Tensor, clean: Tensor) -> Tensor:
        """Reversed."""
        return super().divergence(clean, masked)


class HalfPrecisionSoftmax(Decomposition):
    """The softmaxes are in half precision."""

    def divergence(self, masked: Tensor, clean: Tensor) -> Tensor:
        """Through bfloat16."""
        p, q = (one.bfloat16().log_softmax(dim=-1) for one in (clean, masked))
        return (p.exp() * (p - q)).sum().to(masked.dtype) / masked[..., 0].numel()


class HalfPrecisionSum(Decomposition):
    """Logits in half precision are not converted; others are summed as they should be."""

    def divergence(self, masked: Tensor, clean: Tensor) -> Tensor:
        """In the dtype of the logits."""
        p, q = clean.log_softmax(dim=-1), masked.log_softmax(dim=-1)
        return (p.exp() * (p - q)).sum() / masked[..., 0].numel()


class PerRow(Decomposition):
    """Reduction batchmean: divided by the rows only."""

    def divergence(self, masked: Tensor, clean: Tensor) -> Tensor:
        """Larger by the length of the sequence."""
        return super().divergence(masked, clean) * masked.shape[1]


class PerToken(Decomposition):
    """Reduction mean: divided by the vocabulary, too."""

    def divergence(self, masked: Tensor, clean: Tensor) -> Tensor:
        """Smaller by the size of the vocabulary."""
        return super().divergence(masked, clean) / masked.shape[-1]


class CrossEntropy(Decomposition):
    """The entropy of the clean logits is left out: equal gradients, another loss."""

    def divergence(self, masked: Tensor, clean: Tensor) -> Tensor:
        """A cross entropy."""
        return -(clean.softmax(dim=-1) * masked.log_softmax(dim=-1)).sum() / masked[..., 0].numel()


class EpsOutside(Decomposition):
    """eps is added after the power: the gradient at an importance of 0 is infinite."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """Of importance^p + eps."""
        return self.of_frequencies(upper, [one.pow(self.p(step)) + self.config.eps for one in upper.values()])

    def of_frequencies(self, upper: Mapping[str, Tensor], powers: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Both terms of importances whose powers are these."""
        found = [one.mean(dim=(0, 1)) for one in powers]
        tokens = next(iter(upper.values()))[..., 0].numel()
        plain = torch.stack([one.sum() for one in found]).sum()
        return plain, torch.stack([(one * torch.log2(1 + tokens * one)).sum() for one in found]).sum()


class EpsClamped(EpsOutside):
    """max(importance, eps) instead of a sum: importances of 0 have no gradient at all."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """Of the larger one."""
        return self.of_frequencies(
            upper, [one.clamp_min(self.config.eps * 1.000001).pow(self.p(step)) for one in upper.values()]
        )


class EpsHardCoded(Decomposition):
    """The default of 1e-12 is used, whatever is configured."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """With the default."""
        return losses.minimality(upper, self.p(step), 1e-12)


class NaturalLogarithm(Decomposition):
    """ln instead of log2."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """The second term is 0.69 of what it should be."""
        plain, logarithmic = super().frequencies(upper, step)
        return plain, logarithmic * math.log(2.0)


class MergedSites(EpsOutside):
    """All sites are one group: the logarithm is of the sum of their frequencies (S7)."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """The plain term is the same."""
        summed = torch.stack([(one + self.config.eps).pow(self.p(step)) for one in upper.values()]).sum(dim=0)
        return self.of_frequencies(upper, [summed])


class RowsForTokens(Decomposition):
    """The logarithm's factor is the number of rows, not of tokens."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """1 + rows * f."""
        powers = [(one + self.config.eps).pow(self.p(step)).mean(dim=(0, 1)) for one in upper.values()]
        rows = next(iter(upper.values())).shape[0]
        plain = torch.stack([one.sum() for one in powers]).sum()
        return plain, torch.stack([(one * torch.log2(1 + rows * one)).sum() for one in powers]).sum()


class MeanOverComponents(Decomposition):
    """The mean over components instead of their sum."""

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """Both terms are too small by C."""
        plain, logarithmic = super().frequencies(upper, step)
        return plain / self.config.components, logarithmic / self.config.components


class StuckP(Decomposition):
    """p is never annealed."""

    def p(self, step: int) -> float:
        """The first one."""
        return self.config.p_start


class AnnealedEarly(Decomposition):
    """p has reached its end at the middle of the run."""

    def p(self, step: int) -> float:
        """Twice as fast."""
        return max(self.config.p_end, super().p(2 * step))


class LowerGateCounted(Decomposition):
    """Importance minimality reads the lower gate, which leaks the other way."""

    def importances_of(self, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """The lower gate twice."""
        clean, lower, _ = super().importances_of(tokens)
        return clean, lower, lower
