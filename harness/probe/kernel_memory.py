"""What kernels allocate inside an operator, which fake tensors do not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["BLAS", "hidden_temporaries", "is_unmeasured"]

_aten = torch.ops.aten

# The operators that call cuBLAS.
BLAS = frozenset(
    {_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.mv, _aten.addmv, _aten.dot, _aten._addmm_activation}
)


_UNMEASURED = (
    "aten::convolution", "aten::_cudnn", "aten::cudnn", "aten::_scaled_mm", "aten::linalg_", "aten::_linalg_",
    "aten::_fft", "c10d::", "_c10d_functional::",
)  # fmt: skip
_NEEDS_NO_MEMORY = ("aten::linalg_vector_norm", "c10d::barrier", "_c10d_functional::wait_tensor")


def is_unmeasured(name: str) -> bool:
    """Whether an operator uses memory that was never measured, such as that of cuDNN or NCCL."""
    return name.startswith(_UNMEASURED) and not name.startswith(_NEEDS_NO_MEMORY)


def hidden_temporaries(
    packet: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any
) -> tuple[int, ...]:
    """Return the sizes, in bytes, of what the CUDA kernel of an operator allocates and frees before it returns."""
    sizes = _TEMPORARIES.get(packet)
    return sizes(arguments, result) if sizes is not None else ()


def _flash_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """Accumulated gradient of the queries in float32, and one number a row (`mha_bwd` in flash_api.cpp)."""
    query = arguments[1]
    batch, heads, length, width = query.shape
    rows = batch * heads * (-(-length // 128) * 128)
    rounded = -(-width // 32) * 32
    return rows * rounded * 4, rows * 4


def _efficient_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """One number a row, in float32 (`delta` in attention_backward.cu)."""
    query = arguments[1]
    batch, heads, length, _ = query.shape
    return (batch * heads * length * 4,)


def _embedding_backward(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """Sorted indices and their origins (`embedding_dense_backward_cuda` in Embedding.cu), if not few."""
    indices = arguments[1]
    count = indices.numel()
    if count <= 3072:
        return ()
    size = count * indices.element_size()
    return size, size


def _sort(arguments: tuple[Any, ...], _result: Any) -> tuple[int, ...]:
    """At most a copy of the keys and int64 positions, and the second buffer of both that cub's radix sort needs."""
    keys = arguments[0]
    pairs = keys.numel() * (keys.element_size() + 8)
    return pairs, pairs


_TEMPORARIES: dict[Any, Callable[[tuple[Any, ...], Any], tuple[int, ...]]] = {
    _aten._scaled_dot_product_flash_attention_backward: _flash_backward,
    _aten._scaled_dot_product_efficient_attention_backward: _efficient_backward,
    _aten.embedding_dense_backward: _embedding_backward,
    _aten.sort: _sort,
}
