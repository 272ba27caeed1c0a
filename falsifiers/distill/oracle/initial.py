"""Checks that a student's initial weights are drawn as its configuration says."""

from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.distill.oracle.qwen2 import INITIALIZER_RANGE
from harness.authoring.shadow_step import Difference

_SMALLEST = 2048  # elements; the root mean square of so few has a relative standard deviation of 1.6 %
_SHARPEST = 10.0  # from 204,800 elements on, a standard deviation that is 1 % off is significant


@torch.no_grad()
def initial_differences(weights: Mapping[str, Tensor]) -> list[Difference]:
    """The difference of each tensor from Qwen2's initialisation, by quantity and tensor.

    - `initial_scale`: for a matrix, the root mean square relative to the configured standard deviation, scaled up for
      larger matrices, so that chance contributes equally to all. For norms, which start at 1, and biases, which start
      at 0, the largest distance from that value.
    - `initial_rank`: for a matrix, the effective rank relative to that of independent normal numbers, which is
      rows * columns / (rows + columns). The effective rank is (sum of s^2)^2 / sum of s^4 over the singular values s.
    """
    differences = []
    for name, weight in weights.items():
        values = weight.detach().float()
        if values.dim() < 2:
            away = float((values - (1.0 if "norm" in name else 0.0)).abs().max())
            differences.append(Difference("initial_scale", name, away))
            continue
        rows, columns = values.shape
        square = float(values.square().sum(dtype=torch.float64))
        scale = (square / (rows * columns)) ** 0.5 / INITIALIZER_RANGE
        sharpness = min(_SHARPEST, max(1.0, rows * columns / _SMALLEST) ** 0.5)
        gram = values.T @ values if columns < rows else values @ values.T
        fourth = float(gram.square().sum(dtype=torch.float64))
        rank = (square**2 / fourth) * (rows + columns) / (rows * columns) if fourth else 0.0
        differences += [
            Difference("initial_scale", name, sharpness * abs(scale - 1.0)),
            Difference("initial_rank", name, abs(rank - 1.0)),
        ]
    return differences
