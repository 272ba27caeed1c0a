"""The gradients of a product in float64, and how far those of an engine may be from them."""

from collections.abc import Mapping

import torch
from torch import Tensor

NAMES = ("x", "weight", "output", "grad_output", "grad_x", "grad_weight")
"""The tensors of a product output = x @ weight: [..., k], [k, n], [..., n], and the gradients of a loss."""
GRADIENTS = ("grad_x", "grad_weight")

_STANDARD_DEVIATIONS = 4
_FLOAT32 = 2.0**-24
"""The unit roundoff of float32, in which cuBLAS accumulates."""
_ROUNDOFF = {torch.float32: _FLOAT32, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float64: 2.0**-53}
"""The unit roundoff of each type, in which the result is stored."""


def errors(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """By name of a computed tensor, its largest error over the bound; at most 1 in an engine that rounds as it should.

    The bound of a sum of k products a b is 4 sqrt(k) u sum |a b| + v |sum a b|: u is the unit roundoff of float32 (of
    float64 for float64), v that of the result's type. The error of k additions whose rounding errors are independent
    and of mean zero is within lambda sqrt(k) u sum |a b| with a probability that grows with lambda (Higham and Mary,
    doi.org/10.1137/18M1226312). NaN gives NaN.

    Raises:
        ValueError: a tensor is missing, is of another type, or has a shape that does not fit.
    """
    if missing := [name for name in NAMES if name not in tensors]:
        raise ValueError(f"there is no {missing[0]}")
    if unknown := [name for name in NAMES if tensors[name].dtype not in _ROUNDOFF]:
        raise ValueError(f"{unknown[0]} is of {tensors[unknown[0]].dtype}")
    wide = {name: tensors[name].double().flatten(0, -2) for name in NAMES}
    x, weight, gradient = wide["x"], wide["weight"], wide["grad_output"]
    sides = {"output": (x, weight), "grad_x": (gradient, weight.T), "grad_weight": (x.T, gradient)}
    return {name: _over_bound(tensors[name], wide[name], *pair) for name, pair in sides.items()}


def _over_bound(actual: Tensor, wide: Tensor, left: Tensor, right: Tensor) -> float:
    if left.shape[1] != right.shape[0] or wide.shape != (left.shape[0], right.shape[1]):
        raise ValueError(f"{tuple(left.shape)} times {tuple(right.shape)} does not have the shape {tuple(wide.shape)}")
    true = left @ right
    unit = _ROUNDOFF[actual.dtype]
    sums = _STANDARD_DEVIATIONS * left.shape[1] ** 0.5 * min(_FLOAT32, unit)
    bound = sums * (left.abs() @ right.abs()) + unit * true.abs()
    error = (wide - true).abs()
    over = torch.where(error == 0, 0.0, error / bound)
    return float(over.max())
