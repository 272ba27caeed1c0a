"""Subjects with other learning rates, or another clipping: one known defect each."""

from __future__ import annotations

import math

from falsifiers.param_decomp.reference import Decomposition

__all__ = [
    "ClippedByValue",
    "ClippedWithoutEps",
    "ComponentsOnly",
    "DecaysLinearly",
    "DecaysToZero",
    "EndsAtSteps",
    "ImportancesClipped",
    "LinearRule",
    "NeverDecays",
    "NotScaled",
    "OneStepLate",
    "SquareRootRule",
]


class SquareRootRule(Decomposition):
    """The usual square root: 2.47e-5 where 4.2e-5 was meant."""

    def scaled(self, rate: float) -> float:
        """With the exponent 1/2."""
        return rate * (self.config.batch / self.config.reference_batch) ** 0.5


class LinearRule(Decomposition):
    """The linear rule of SGD."""

    def scaled(self, rate: float) -> float:
        """With the exponent 1."""
        return rate * self.config.batch / self.config.reference_batch


class NotScaled(Decomposition):
    """The rate of the larger batch is kept."""

    def scaled(self, rate: float) -> float:
        """As it is."""
        return rate


class EndsAtSteps(Decomposition):
    """The cosine ends one step after the last (optax's convention)."""

    def scheduled(self, rate: float, step: int) -> float:
        """Divided by `steps`."""
        final = self.config.final_rate
        return rate * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * step / self.config.steps)))


class NeverDecays(Decomposition):
    """Constant."""

    def scheduled(self, rate: float, step: int) -> float:
        """As it is."""
        return rate


class DecaysToZero(Decomposition):
    """`final_rate` is not used."""

    def scheduled(self, rate: float, step: int) -> float:
        """Down to nothing."""
        return rate * 0.5 * (1 + math.cos(math.pi * step / (self.config.steps - 1)))


class DecaysLinearly(Decomposition):
    """A line instead of a cosine: the same at both ends."""

    def scheduled(self, rate: float, step: int) -> float:
        """Linear."""
        return rate * (1 - (1 - self.config.final_rate) * step / (self.config.steps - 1))


class OneStepLate(Decomposition):
    """The schedule is stepped after the optimizer: the first two steps have one rate."""

    def scheduled(self, rate: float, step: int) -> float:
        """That of the step before."""
        return super().scheduled(rate, max(0, step - 1))


class ComponentsOnly(Decomposition):
    """The schedule is that of the components' optimizer only."""

    def importance_rate(self, step: int) -> float:
        """Constant."""
        return self.scaled(self.config.importance_rate)


class ClippedWithoutEps(Decomposition):
    """The limit over the norm alone, as optax has it: 1e-4 off at a norm of 0.01 (S19)."""

    def clip(self) -> None:
        """Without 1e-6."""
        gradients = [one.grad for one in self.components().values() if one.grad is not None]
        norm = math.sqrt(sum(float(one.square().sum()) for one in gradients))
        for gradient in gradients:
            gradient *= min(1.0, self.config.gradient_norm / norm)


class ClippedByValue(Decomposition):
    """Each entry is cut to the limit, not their norm."""

    def clip(self) -> None:
        """Entry by entry."""
        for one in self.components().values():
            if one.grad is not None:
                one.grad.clamp_(-self.config.gradient_norm, self.config.gradient_norm)


class ImportancesClipped(Decomposition):
    """The gradient of the importance weights is cut as well."""

    def clip(self) -> None:
        """Both."""
        super().clip()
        gradients = [one.grad for one in self.importance_weights().values() if one.grad is not None]
        norm = math.sqrt(sum(float(one.square().sum()) for one in gradients))
        for gradient in gradients:
            gradient *= min(1.0, self.config.gradient_norm / (norm + 1e-6))
