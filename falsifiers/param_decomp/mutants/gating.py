"""Subjects whose gates of causal importance are other ones: one known defect each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from falsifiers.param_decomp.reference import Decomposition
from falsifiers.param_decomp.reference.importance import ALPHA, lower_leaky, upper_leaky

__all__ = [
    "AboveOnePasses",
    "BoundaryAbove",
    "GatesExchanged",
    "LeaksBothWays",
    "LeaksTenTimes",
    "PlainClamp",
    "SignFlipped",
    "UpperLeaksBelow",
    "UpperPlainClamp",
]


class _Lower(torch.autograd.Function):
    """clamp(x, 0, 1) with a gradient of its own."""

    @staticmethod
    def forward(context: Any, x: Tensor, rule: Any) -> Tensor:
        context.save_for_backward(x)
        context.rule = rule
        return x.clamp(0.0, 1.0)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = context.saved_tensors
        return context.rule(x, gradient), None


class _OtherLower(Decomposition):
    """A lower gate with another backward rule."""

    @staticmethod
    def rule(x: Tensor, gradient: Tensor) -> Tensor:
        """The gradient of the logits."""
        raise NotImplementedError

    def gates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The upper gate is the reference's."""
        return _Lower.apply(logits, self.rule), upper_leaky(logits)


class PlainClamp(Decomposition):
    """A clamp: an importance that is 0 never comes back."""

    def gates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """No leak below."""
        return logits.clamp(0.0, 1.0), upper_leaky(logits)


class SignFlipped(_OtherLower):
    """The leak passes gradients that push further down."""

    @staticmethod
    def rule(x: Tensor, gradient: Tensor) -> Tensor:
        """The wrong sign is tested."""
        below = torch.where(gradient > 0, ALPHA * gradient, 0.0)
        return torch.where(x <= 0, below, torch.where(x <= 1, gradient, 0.0))


class LeaksBothWays(_OtherLower):
    """The leak passes every gradient, as a leaky ReLU does."""

    @staticmethod
    def rule(x: Tensor, gradient: Tensor) -> Tensor:
        """No sign is tested."""
        return torch.where(x <= 0, ALPHA * gradient, torch.where(x <= 1, gradient, 0.0))


class LeaksTenTimes(_OtherLower):
    """The slope is 0.1."""

    @staticmethod
    def rule(x: Tensor, gradient: Tensor) -> Tensor:
        """Another common default."""
        below = torch.where(gradient < 0, 0.1 * gradient, 0.0)
        return torch.where(x <= 0, below, torch.where(x <= 1, gradient, 0.0))


class AboveOnePasses(_OtherLower):
    """The lower gate leaks above 1, as the upper one does."""

    @staticmethod
    def rule(x: Tensor, gradient: Tensor) -> Tensor:
        """A share passes."""
        below = torch.where(gradient < 0, ALPHA * gradient, 0.0)
        return torch.where(x <= 0, below, torch.where(x <= 1, gradient, ALPHA * gradient))


class BoundaryAbove(_OtherLower):
    """A logit of exactly 0 belongs to the upper branch: all of its gradient passes."""

    @staticmethod
    def rule(x: Tensor, gradient: Tensor) -> Tensor:
        """x < 0 where x <= 0 is stated."""
        below = torch.where(gradient < 0, ALPHA * gradient, 0.0)
        return torch.where(x < 0, below, torch.where(x <= 1, gradient, 0.0))


class UpperPlainClamp(Decomposition):
    """The upper gate is a clamp: an importance above 1 is never pulled back."""

    def gates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """No leak above."""
        return lower_leaky(logits), logits.clamp(0.0, 1.0)


class UpperLeaksBelow(Decomposition):
    """The upper gate leaks below 0, too: minimality pushes dead importances further down."""

    def gates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """ALPHA on both sides."""
        return lower_leaky(logits), upper_leaky(logits) + ALPHA * (logits - logits.clamp_min(0.0))


class GatesExchanged(Decomposition):
    """Masks are made of the upper gate, and minimality reads the lower one."""

    def gates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Exchanged."""
        return upper_leaky(logits), lower_leaky(logits)
