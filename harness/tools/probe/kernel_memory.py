"""What kernels allocate inside an operator, which fake tensors do not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.tools.probe.device_table import Device

__all__ = ["BIASED", "BLAS", "hidden_temporaries", "is_unmeasured"]

_aten = torch.ops.aten

# The operators that call cuBLAS.
BLAS = frozenset(
    {_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.mv, _aten.addmv, _aten.dot, _aten._addmm_activation}
)


# Those of them that call cuBLASLt, which has a workspace of its own.
BIASED = frozenset({_aten.addmm, _aten._addmm_activation})
_SUMMED = (torch.float32, torch.bfloat16, torch.float16)
_UNMEASURED = (
    "aten::convolution", "aten::_cudnn", "aten::cudnn", "aten::_scaled_mm", "aten::linalg_", "aten::_linalg_",
    "aten::_fft", "c10d::", "_c10d_functional::",
)  # fmt: skip
_NEEDS_NO_MEMORY = ("aten::linalg_vector_norm", "c10d::barrier", "_c10d_functional::wait_tensor")


def is_unmeasured(name: str) -> bool:
    """Whether an operator uses memory that was never measured, such as that of cuDNN or NCCL."""
    return name.startswith(_UNMEASURED) and not name.startswith(_NEEDS_NO_MEMORY)


def hidden_temporaries(packet: Any, arguments: tuple[Any, ...], result: Any, device: Device) -> tuple[int, ...]:
    """Return the sizes, in bytes, of what the CUDA kernel of an operator allocates and frees before it returns."""
    if packet in _SUMS:
        return _sum(arguments[0], result, device.multiprocessors)
    sizes = _TEMPORARIES.get(packet)
    return sizes(arguments, result) if sizes is not None else ()


_FEW = 3072
"""The number of indices up to which another kernel sums the gradients of an embedding."""
_MAX_OF_BAG = 2
_SUMS = frozenset({_aten.sum, _aten.mean})


def _sum(summed: torch.Tensor, result: torch.Tensor, multiprocessors: int) -> tuple[int, ...]:
    """The partial sums of thread blocks that share an output, in float32 (`setReduceConfig` in Reduce.cuh)."""
    outputs = result.numel()
    if not outputs or not summed.is_contiguous() or summed.dtype not in _SUMMED:
        return ()
    inputs = summed.numel() // outputs
    is_along_rows = outputs > 1 and (result.dim() == 0 or result.size(-1) == summed.size(-1)) and summed.dim() > 1
    vector = 1
    if is_along_rows:
        vector = next(each for each in (4, 2, 1) if summed.size(-1) % each == 0)
        width, height = outputs // vector, inputs
    else:
        width, height = (inputs // 4 if inputs >= 128 else inputs), outputs
    most = 512 // vector
    width, height = (min(most, 1 << max(each.bit_length() - 1, 0)) for each in (width, height))
    columns = min(width, 32)
    rows = min(height, most // columns)
    columns = min(width, most // rows)
    step_input, step_output = (1, columns) if is_along_rows else (columns, 1)
    if -(-inputs // step_input) < min(rows * 16, 256):
        return ()
    values = -(-inputs // (step_input * rows))
    grid = -(-(outputs // vector) // step_output)
    blocks = multiprocessors * (2048 // (columns * rows))
    if values < 256 or grid > blocks:
        return ()
    sharing = max(min(-(-blocks // grid), -(-values // 16)), -(-values // 256))
    if sharing == 1:
        return ()
    return 4 * outputs * sharing * (columns * vector if is_along_rows else 1), 4 * grid


def _flash_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """Accumulated gradient of the queries in float32, and one number a row (`mha_bwd` in flash_api.cpp)."""
    query = arguments[1]
    batch, heads, length, width = query.shape
    rows = batch * heads * (-(-length // 128) * 128)
    rounded = -(-width // 32) * 32
    return rows * rounded * 4, rows * 4


def _efficient_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """A number a row, in float32: the `delta` of attention_backward.cu, a sum of products. Of float32, these too.

    A gradient whose heads do not lie within its rows is copied first.
    """
    gradient, query = arguments[:2]
    batch, heads, length, _ = query.shape
    rows = batch * heads * length * 4
    copy = () if gradient.transpose(1, 2).is_contiguous() else (gradient.numel() * gradient.element_size(),)
    return (*copy, query.numel() * 4, rows, rows) if query.dtype == torch.float32 else (*copy, rows)


def _cudnn_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """One number a row; with grouped heads, the gradients of key and value for each head of the query, in float32."""
    query, key = arguments[1:3]
    batch, heads, length, width = query.shape
    rows = batch * heads * length
    return (rows * 4 + (2 * rows * width * 4 if key.size(1) != heads else 0) + 256,)


def _safe_softmax(_arguments: tuple[Any, ...], result: Any) -> tuple[int, ...]:
    """Which scores are not finite, in one byte each (`_safe_softmax` in attention.cpp)."""
    return (result.numel(),)


def _loss(arguments: tuple[Any, ...], result: Any) -> tuple[int, ...]:
    """The losses of the elements, twice, if they are reduced (`Loss.cpp`)."""
    size = max(arguments[0].numel(), arguments[1].numel()) * result.element_size()
    return () if result.dim() else (size, size)


def _embedding_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """Sorted indices, their origins, and a row in float32 for each (`EmbeddingBackwardKernel.cu`), if not few."""
    gradient, indices = arguments[:2]
    count = indices.numel()
    if count <= _FEW:
        return ()
    size = count * indices.element_size()
    return size, size, count * (-(-gradient.size(-1) // 32) * 32) * 4


def _bag_backward(arguments: tuple[Any, ...], result: Any) -> tuple[int, ...]:
    """Sorted indices with their origins and bags, and partial sums of rows in float32 (`EmbeddingBag.cu`)."""
    indices, mode = arguments[1], arguments[8]
    count, rows = indices.numel(), result.size(0)
    if mode == _MAX_OF_BAG or count <= _FEW or result.is_sparse:
        return ()
    size, partial = count * indices.element_size(), min(count, rows) + count // 10
    return (*[size] * 5, partial * indices.element_size(), partial * (-(-result.size(1) // 32) * 32) * 4)


def _sort(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """At most a copy of the keys and int64 positions, and the second buffer of both that cub's radix sort needs."""
    keys = arguments[0]
    pairs = keys.numel() * (keys.element_size() + 8)
    return pairs, pairs


_TEMPORARIES: dict[Any, Callable[[tuple[Any, ...], Any], tuple[int, ...]]] = {
    _aten._scaled_dot_product_flash_attention_backward: _flash_backward,
    _aten._scaled_dot_product_efficient_attention_backward: _efficient_backward,
    _aten._scaled_dot_product_cudnn_attention_backward: _cudnn_backward,
    _aten._safe_softmax: _safe_softmax,
    _aten.mse_loss: _loss,
    _aten.smooth_l1_loss: _loss,
    _aten.embedding_dense_backward: _embedding_backward,
    _aten._embedding_bag_backward: _bag_backward,
    _aten.sort: _sort,
}
