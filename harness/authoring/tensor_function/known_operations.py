"""Decompositions of torch operations with cancellation, so that the error model sees their intermediate results.

The gradient of a softmax is a difference of terms that can be much larger than the result. Where torch has one fused
operation for it, neither inputs nor result show the magnitude of these terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["STEPS"]


def _softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Gradient of a softmax, from its output."""
    weighted = grad * output
    return weighted - output * weighted.sum(dim=dim, keepdim=True)


def _log_softmax(tensor: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Log-softmax. For the largest element it is minus the logarithm of a sum that can be close to 1."""
    shifted = tensor - tensor.amax(dim, keepdim=True) if tensor.numel() else tensor
    return shifted - shifted.exp().sum(dim=dim, keepdim=True).log()


def _log_softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Gradient of a log-softmax, from its output."""
    return grad - output.exp() * grad.sum(dim=dim, keepdim=True)


def _layer_norm_backward(
    grad: Tensor,
    tensor: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of a layer norm for tensor, weight and bias. `mask` says which of them are computed."""
    inner = [*range(tensor.dim() - len(shape), tensor.dim())]
    outer = [*range(tensor.dim() - len(shape))]
    normal = (tensor - mean) * rstd
    scaled = grad if weight is None else grad * weight
    centred = scaled - scaled.mean(inner, keepdim=True) - normal * (scaled * normal).mean(inner, keepdim=True)
    along = (grad * normal).sum(outer) if outer else grad * normal
    return (
        centred * rstd if mask[0] else None,
        along.reshape(shape) if mask[1] else None,
        (grad.sum(outer) if outer else grad * 1.0).reshape(shape) if mask[2] else None,
    )


def _layer_norm(
    tensor: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer norm, with the mean and the reciprocal standard deviation."""
    inner = [*range(tensor.dim() - len(shape), tensor.dim())]
    if not math.prod(shape):
        first, second, third = torch.ops.aten.native_layer_norm.default(tensor, shape, weight, bias, eps)
        return first, second, third
    mean = tensor.mean(inner, keepdim=True)
    centred = tensor - mean
    rstd = ((centred * centred).mean(inner, keepdim=True) + eps).rsqrt()
    normal = centred * rstd
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias, mean, rstd


def _sigmoid(tensor: Tensor) -> Tensor:
    """Sigmoid by tanh, as GPUs may compute it. Small results come from cancellation with 1."""
    return (torch.tanh(tensor * 0.5) + 1.0) * 0.5


def _silu(tensor: Tensor) -> Tensor:
    """SiLU by that sigmoid."""
    return tensor * _sigmoid(tensor)


def _silu_backward(grad: Tensor, tensor: Tensor) -> Tensor:
    """Gradient of SiLU."""
    part = _sigmoid(tensor)
    return grad * (part * (1.0 + tensor * (1.0 - part)))


_aten = torch.ops.aten
STEPS: Final[Mapping[Any, Callable[..., Any]]] = {
    _aten._softmax_backward_data.default: _softmax_backward,
    _aten._log_softmax.default: _log_softmax,
    _aten._log_softmax_backward_data.default: _log_softmax_backward,
    _aten.sigmoid.default: _sigmoid,
    _aten.silu.default: _silu,
    _aten.silu_backward.default: _silu_backward,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
}
"""Decompositions by operation, with the same arguments and results."""
