"""Without the gradient, the oracle decides whether a change of weights is one step of AdamW."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from falsifiers.distill.oracle.one_step import is_one_step
from falsifiers.distill.oracle.shadow import Configuration

CONFIGURATION = Configuration("none", learning_rate=0.01, alpha=0.3, temperature=4.0)


def seen(
    change: Callable[[torch.optim.AdamW, Tensor], None], dtype: torch.dtype = torch.float32, steps: int = 4
) -> list[bool]:
    """The answer after each of several steps of torch's AdamW, each made by `change`."""
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(size, generator=generator).to(dtype).requires_grad_() for name, size in (("a", 64), ("b", 7))
    }
    optimizer = torch.optim.AdamW(weights.values(), lr=0.01)
    answers = []
    for _ in range(steps):
        before = {name: weight.detach().clone() for name, weight in weights.items()}
        for weight in weights.values():
            weight.grad = torch.randn(weight.shape, generator=generator).to(dtype)
        change(optimizer, weights["b"])
        slots = {name: optimizer.state[weight] for name, weight in weights.items()}
        answers.append(is_one_step(CONFIGURATION, before, weights, slots))
    return answers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_step_is_one(dtype: torch.dtype) -> None:
    """A step counts as one step, in each dtype of the parameters."""
    assert seen(lambda optimizer, weight: optimizer.step(), dtype) == [True] * 4


def doubled(optimizer: torch.optim.AdamW, weight: Tensor) -> None:
    """Make two steps."""
    optimizer.step()
    optimizer.step()


def at_another_rate(optimizer: torch.optim.AdamW, weight: Tensor) -> None:
    """Make a step with a rate that is a quarter too high."""
    optimizer.param_groups[0]["lr"] = 0.0125
    optimizer.step()


def put_back(optimizer: torch.optim.AdamW, weight: Tensor) -> None:
    """Put one of the two tensors back without the optimizer's knowledge."""
    before = weight.detach().clone()
    optimizer.step()
    with torch.no_grad():
        weight.copy_(before)


@pytest.mark.parametrize("change", [doubled, at_another_rate, put_back])
def test_what_is_not_one_step(change: Callable[[torch.optim.AdamW, Tensor], None]) -> None:
    """Each of these defects is detected from the first step on."""
    assert seen(change) == [False] * 4
