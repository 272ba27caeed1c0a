"""Whether a student's first weights are drawn as its configuration says."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.distill.oracle.qwen2 import INITIALIZER_RANGE
from harness.authoring.shadow_step import Difference

__all__ = ["initial_differences"]

_SMALLEST = 2048  # elements; a matrix of the small model. Its root mean square scatters by 1.6 %
_SHARPEST = 10.0  # from 204,800 elements on: a standard deviation that is 1 % off is no chance


@torch.no_grad()
def initial_differences(weights: Mapping[str, Tensor]) -> list[Difference]:
    """How far each tensor is from what Qwen2 starts with, by quantity and tensor.

    - `initial_scale`: of a matrix, its root mean square beside the configured standard deviation, multiplied for a
      larger matrix, so that chance has the same part in all. Norms are 1 and biases 0; the ratio is their largest
      distance from that.
    - `initial_rank`: of a matrix, its effective rank beside that of independent normal numbers, which is
      rows * columns / (rows + columns). The effective rank is (sum of s^2)^2 / sum of s^4 over the singular values s.
    """
    found = []
    for name, weight in weights.items():
        values = weight.detach().float()
        if values.dim() < 2:
            away = float((values - (1.0 if "norm" in name else 0.0)).abs().max())
            found.append(Difference("initial_scale", name, away))
            continue
        rows, columns = values.shape
        square = float(values.square().sum(dtype=torch.float64))
        scale = (square / (rows * columns)) ** 0.5 / INITIALIZER_RANGE
        sharpness = min(_SHARPEST, max(1.0, rows * columns / _SMALLEST) ** 0.5)
        gram = values.T @ values if columns < rows else values @ values.T
        fourth = float(gram.square().sum(dtype=torch.float64))
        rank = (square**2 / fourth) * (rows + columns) / (rows * columns) if fourth else 0.0
        found += [
            Difference("initial_scale", name, sharpness * abs(scale - 1.0)),
            Difference("initial_rank", name, abs(rank - 1.0)),
        ]
    return found
