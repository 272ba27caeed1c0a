"""Errors of gradients. In a mapping they have the names of their parameters."""

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest

import torch
from torch import Tensor


def largest_error(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest absolute difference of any element; infinite if a gradient is missing or has another shape."""
    if not _comparable(actual, expected):
        return math.inf
    return worst([float(_difference(actual[name], right).abs().max()) for name, right in expected.items()])


def largest_relative_error(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest `relative_error` of any gradient; infinite as above.

    In training, some parameters have gradients far below 1e-4. An error in such a gradient shows only relative to it.
    """
    if not _comparable(actual, expected):
        return math.inf
    return worst([relative_error(actual[name], right) for name, right in expected.items()])


def relative_error(actual: Tensor | None, expected: Tensor) -> float:
    """The distance of two gradients relative to the length of the true one. None counts as zeros."""
    length = float(torch.linalg.vector_norm(expected.double()))
    distance = float(torch.linalg.vector_norm(expected.double() if actual is None else _difference(actual, expected)))
    return distance / length if length > 0.0 else 0.0 if distance == 0.0 else math.inf


def worst(errors: Sequence[float]) -> float:
    """The largest error; NaN if one is NaN, which max() could drop, or if there is none."""
    return max(errors) if errors and not any(map(math.isnan, errors)) else math.nan


def other_weights(weights: Sequence[Tensor], sizes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The weights that do not have the shape of the parameter at the same place; empty if all agree."""
    places = zip_longest(sizes.items(), (tuple(weight.shape) for weight in weights), fillvalue=None)
    return [
        f"weight {number} is {shape or 'none'}, and should be {' '.join(map(str, expected)) if expected else 'none'}"
        for number, (expected, shape) in enumerate(places)
        if expected is None or expected[1] != shape
    ]


def _comparable(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    return actual.keys() == expected.keys() and all(actual[name].shape == expected[name].shape for name in expected)


def _difference(actual: Tensor, right: Tensor) -> Tensor:
    return actual.to(right.device).double() - right.double()
