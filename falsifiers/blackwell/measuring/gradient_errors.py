"""Errors of gradients, which are given by the names of their parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["largest_error", "largest_relative_error"]


def largest_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest absolute difference of any element; infinite if a gradient is missing or has another shape."""
    if not _comparable(found, expected):
        return float("inf")
    differences = [_difference(found[name], right).abs().max() for name, right in expected.items()]
    return float(torch.stack(differences).max())  # max() returns NaN if there is one


def largest_relative_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest distance between two gradients, relative to the length of the expected one; infinite as above.

    In training, some parameters have gradients far below 1e-4. An error in such a gradient shows only relative to it.
    """
    if not _comparable(found, expected):
        return float("inf")
    differences = torch.stack([_difference(found[name], right).norm() for name, right in expected.items()])
    lengths = torch.stack([right.double().norm() for right in expected.values()])
    return float((differences / lengths.clamp(min=1e-30)).max())


def _comparable(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(found[name].shape == expected[name].shape for name in expected)


def _difference(found: Tensor, right: Tensor) -> Tensor:
    return found.to(right.device).double() - right.double()
