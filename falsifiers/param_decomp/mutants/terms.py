"""Subjects whose terms of the objective are other ones: one known defect each."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.param_decomp.reference import Decomposition, losses

__all__ = [
    "CoefficientOfOneChunk",
    "DeltaAdded",
    "MeanOfSiteMeans",
    "NormNotSquared",
    "OneSiteForgotten",
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
