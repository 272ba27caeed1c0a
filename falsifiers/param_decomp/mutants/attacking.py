"""Subjects whose adversary is another one: one known defect each."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.param_decomp.reference import Decomposition
from falsifiers.param_decomp.reference.adversary import Adversary
from harness import Setting

__all__ = [
    "CoefficientScaled",
    "Descends",
    "FreshMoments",
    "NotClamped",
    "OneAscentLess",
    "PostUpdate",
    "ResetEachStep",
    "SourcesStand",
    "StaleSources",
]


class _Turned(Adversary):
    """An adversary that goes down."""

    def ascend(self, gradients: Mapping[str, Tensor], rate: float) -> None:
        """With the sign of a minimizer."""
        super().ascend({name: -one for name, one in gradients.items()}, rate)


class Descends(Decomposition):
    """The sources are trained as weights are: down the loss."""

    def __init__(self, setting: Setting) -> None:
        """With the other sign."""
        super().__init__(setting)
        self.adversary = _Turned(self.adversary.sources)


class ResetEachStep(Decomposition):
    """The sources are drawn anew in each step: ordinary PGD."""

    def step(self, step: int) -> Mapping[str, float]:
        """Persistence is lost."""
        self.adversary = Adversary({name: torch.rand_like(one) for name, one in self.adversary.sources.items()})
        return super().step(step)


class FreshMoments(Decomposition):
    """The sources persist, and their optimizer does not."""

    def step(self, step: int) -> Mapping[str, float]:
        """The moments of earlier steps are lost."""
        self.adversary.slots.clear()
        return super().step(step)


class CoefficientScaled(Decomposition):
    """The main ascent has the gradient of the weighted term. Adam hides the scale, but not from its moments."""

    def main_source_gradients(self) -> dict[str, Tensor]:
        """By the coefficient."""
        return {name: self.config.adversarial * one for name, one in super().main_source_gradients().items()}


class _Unbounded(Adversary):
    """An adversary without a projection."""

    def project(self, source: Tensor) -> None:
        """Anything."""


class NotClamped(Decomposition):
    """The sources leave [0, 1]: masks are negative, or above 1."""

    def __init__(self, setting: Setting) -> None:
        """Without the projection."""
        super().__init__(setting)
        self.adversary = _Unbounded(self.adversary.sources)


class OneAscentLess(Decomposition):
    """The main step's ascent counts as one of the supplemental ones."""

    def warm_up_sources(self, tokens: Tensor, lower: Mapping[str, Tensor], clean: Tensor, rate: float) -> None:
        """One fewer."""
        fixed = {name: one.detach() for name, one in lower.items()}
        for _ in range(self.config.ascents - 1):
            found = torch.autograd.grad(self.adversarial(tokens, fixed, clean), list(self.adversary.sources.values()))
            self.adversary.ascend(dict(zip(self.adversary.sources, found, strict=True)), rate)


class PostUpdate(Decomposition):
    """The last ascent follows the update: its gradient is that of the new components."""

    def step(self, step: int) -> Mapping[str, float]:
        """The step without its ascent, and then the ascent."""
        told = super().step(step)
        tokens = self.batch(step)
        clean, lower, _ = self.importances_of(tokens)
        found = torch.autograd.grad(self.adversarial(tokens, lower, clean), list(self.adversary.sources.values()))
        self.adversary.ascend(dict(zip(self.adversary.sources, found, strict=True)), self.source_rate(step))
        return told

    def main_ascent(self, step: int) -> None:
        """Not yet."""


class SourcesStand(Decomposition):
    """The sources never move: a detached copy is trained."""

    def source_rate(self, step: int) -> float:
        """0."""
        return 0.0


class StaleSources(Decomposition):
    """The main term takes the sources from before the supplemental ascents."""

    def adversarial(self, tokens: Tensor, lower: Mapping[str, Tensor], clean: Tensor) -> Tensor:
        """With a stale copy, if the importances are live."""
        if next(iter(lower.values())).requires_grad:
            current = self.adversary.sources
            self.adversary.sources = self.stale
            value = super().adversarial(tokens, lower, clean)
            self.adversary.sources = current
            return value
        return super().adversarial(tokens, lower, clean)

    def warm_up_sources(self, tokens: Tensor, lower: Mapping[str, Tensor], clean: Tensor, rate: float) -> None:
        """Keep a copy first."""
        self.stale = {name: one.detach().clone().requires_grad_() for name, one in self.adversary.sources.items()}
        super().warm_up_sources(tokens, lower, clean, rate)

    def main_source_gradients(self) -> dict[str, Tensor]:
        """Those of the copy."""
        found = {name: one.grad for name, one in self.stale.items()}
        return {name: one / self.config.adversarial for name, one in found.items() if one is not None}
