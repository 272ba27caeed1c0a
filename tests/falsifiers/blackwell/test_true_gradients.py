"""The true gradients of a step, and the error of others."""

from __future__ import annotations

import math
import re

import pytest
import torch

from falsifiers.blackwell.measuring.true_gradients import TrueGradients, relative_error
from falsifiers.blackwell.reference.block import Block
from falsifiers.blackwell.reference.model import LanguageModel
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.reference.torch_backend import TorchBackend

SHAPE = SHAPES["qwen2-tiny"]


def test_they_are_those_of_the_loss_by_finite_differences() -> None:
    """A step of 1e-3 along its own gradient changes the loss by as much as the gradient says."""
    truth = TrueGradients(SHAPE, 2, 64, torch.device("cpu"))
    truth._model.double()
    drawn = LanguageModel(SHAPE, [Block(SHAPE, TorchBackend())] * 2, 64, 1, torch.device("cpu"))
    weights = list(drawn.double().parameters())
    tokens = torch.randint(64, (2, 9), generator=torch.Generator().manual_seed(1))
    for weight, gradient in zip(weights, truth.at(weights, tokens), strict=True):
        along = 1e-3 * gradient / gradient.norm()
        losses = []
        for sign in (1, -1):
            with torch.no_grad():
                weight += sign * along
            truth.at(weights, tokens)
            losses.append(float(truth._model.loss(tokens).detach()))
            with torch.no_grad():
                weight -= sign * along
        assert (losses[0] - losses[1]) / 2e-3 == pytest.approx(float(gradient.norm()), rel=1e-3)


def test_weights_that_are_not_the_models_are_named() -> None:
    truth = TrueGradients(SHAPE, 1, 64, torch.device("cpu"))
    weights = list(TrueGradients(SHAPE, 1, 64, torch.device("cpu"))._model.parameters())
    assert truth.other_weights(weights) == []
    (missing,), (extra,) = truth.other_weights(weights[:-1]), truth.other_weights([*weights, torch.ones(3)])
    assert re.findall(r"\d+|\[.*?\]", missing) == [str(len(weights) - 1), "[64, 176]"]
    assert re.findall(r"\d+|\[.*?\]", extra) == [str(len(weights)), "[3]"]


@pytest.mark.parametrize(
    ("found", "error"),
    [([3.0, 4.0], 0.0), ([6.0, 8.0], 1.0), ([0.0, 0.0], 1.0), (None, 1.0), ([3.0, math.nan], math.nan)],
)
def test_the_error_is_relative_to_the_true_gradient(found: list[float] | None, error: float) -> None:
    gradient = None if found is None else torch.tensor(found)
    assert relative_error(gradient, torch.tensor([3.0, 4.0])) == pytest.approx(error, nan_ok=True)


def test_where_there_is_no_gradient_none_is_right() -> None:
    """For example the gradients of queries and keys with one token."""
    nothing = torch.zeros(2)
    assert relative_error(nothing, nothing) == 0.0
    assert relative_error(None, nothing) == 0.0
    assert relative_error(torch.ones(2), nothing) == math.inf
