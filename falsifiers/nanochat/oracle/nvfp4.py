"""NVFP4 by its definition, number by number in float64.

A number is one of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, with a sign (E2M1). Each 16 numbers of a row share a scale, rounded to
E4M3. All share a float32 scale, with which the largest number becomes 6 * 448. Source: NVIDIA, "Pretraining Large
Language Models with NVFP4" (arXiv 2509.25149), section 2 and appendix B.
"""

import bisect

import torch
from torch import Tensor

BLOCK = 16
_E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
_E4M3 = sorted(
    {0.0, *(m / 8 * 2.0**-6 for m in range(8)), *((1 + m / 8) * 2.0**e for e in range(-6, 9) for m in range(8))}
)
_E4M3 = [value for value in _E4M3 if value <= 448.0]


def kept(values: Tensor) -> Tensor:
    """Return values [rows, columns] rounded to NVFP4; the columns are a multiple of 16."""
    rows = values.double().tolist()
    largest = max(abs(value) for row in rows for value in row)
    tensor_scale = _single(largest / (6.0 * 448.0))
    numbers = [
        [value for start in range(0, len(row), BLOCK) for value in _block(row[start : start + BLOCK], tensor_scale)]
        for row in rows
    ]
    return torch.tensor(numbers, dtype=torch.float64)


def product(inputs: Tensor, weight: Tensor) -> Tensor:
    """Return the product of rounded inputs [rows, width] and rounded weight [out, width]: [rows, out]."""
    return kept(inputs) @ kept(weight).T


def input_gradient(grad_output: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of the inputs; the blocks of both rounded factors lie along the outputs."""
    return kept(grad_output) @ kept(weight.T).T


def weight_gradient(grad_output: Tensor, inputs: Tensor) -> Tensor:
    """Return the gradient of the weight, from unrounded factors."""
    return grad_output.double().T @ inputs.double()


def _block(values: list[float], tensor_scale: float) -> list[float]:
    if tensor_scale == 0.0:
        return [0.0] * len(values)
    scale = _nearest(_single(max(map(abs, values)) / 6.0 / tensor_scale), _E4M3) * tensor_scale
    if scale == 0.0:
        return [0.0] * len(values)
    return [(-1.0 if value < 0 else 1.0) * _nearest(abs(value) / scale, _E2M1) * scale for value in values]


def _nearest(value: float, grid: list[float]) -> float:
    """Return the nearest number of a grid; in a tie, the one at an even index."""
    place = bisect.bisect_left(grid, value)
    if place == 0 or place == len(grid):
        return grid[min(place, len(grid) - 1)]
    below, above = value - grid[place - 1], grid[place] - value
    return grid[place - 1] if below < above or (below == above and (place - 1) % 2 == 0) else grid[place]


def _single(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float32))
