"""What the corpus's optimizer steps should compute, and how their arguments are drawn."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.authoring.tensor_function.drawing import Draw

__all__ = ["BETAS", "EPSILON", "RATE", "adam", "direction", "example_of_adam", "example_of_moments"]

RATE, EPSILON, BETAS = 1e-3, 1e-8, (0.9, 0.999)


def direction(first: Tensor, second: Tensor) -> Tensor:
    """Adam's direction of moments; where both are 0, it is 0."""
    return first / (torch.sqrt(second * second) ** 0.5 + EPSILON)


def example_of_moments(draw: Draw) -> tuple[Tensor, Tensor]:
    """The moments of weights that sometimes have no gradient at all."""
    size = draw.size("size")
    there = draw.mask(size, share=0.6)
    return draw.tensor(size) * there, draw.tensor(size, positive=True) * there


def adam(weight: Tensor, gradient: Tensor, first: Tensor, second: Tensor, step: int) -> Tensor:
    """The weight after a step of Adam with bias correction; the moments are those before it."""
    one, two = BETAS
    first = one * first + (1 - one) * gradient
    second = two * second + (1 - two) * gradient * gradient
    return weight - RATE * (first / (1 - one**step)) / ((second / (1 - two**step)).sqrt() + EPSILON)


def example_of_adam(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """A matrix, its gradient, its moments, and the number of the step."""
    shape = draw.size("rows"), draw.size("columns")
    parts = draw.tensor(*shape), draw.tensor(*shape), draw.tensor(*shape), draw.tensor(*shape, positive=True)
    return (*parts, draw.choice("step", 1, 10, 1000))
