"""How far the gradients that a subject found are from those that they should be, by the names of the parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["largest_error", "largest_relative_error"]


def largest_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest absolute difference of any element; infinite where a gradient is missing or has another shape."""
    if not _comparable(found, expected):
        return float("inf")
    differences = [_difference(found[name], right).abs().max() for name, right in expected.items()]
    return float(torch.stack(differences).max())  # a NaN among them is the largest


def largest_relative_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Of each gradient the length of the difference over its own length, the largest of these; infinite as above.

    Among the parameters of a model that trains some have gradients far below 1e-4, wrong or right: what is lost or
    doubled there shows by its own size only.
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
