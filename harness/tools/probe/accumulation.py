"""Where autograd adds gradients of one tensor in place, which it does not do with fake tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["accumulated"]

_ENGINE = "_engine_run_backward"
_WRAPPERS = ("_fn", "inner")
"""The code of `torch._disable_dynamo`, which wraps `__torch_dispatch__`."""
_TENSOR_REFERENCES, _STORAGE_REFERENCES = 4, 2
"""The references to a tensor that only the engine holds, as `__torch_dispatch__` counts them."""
_use_count: Callable[[int], int] = torch._C._storage_Use_Count


def accumulated(operator: Any, arguments: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return the operator that real tensors would get, and its arguments.

    `InputBuffer::accumulate` (input_buffer.cpp) adds into a gradient that nothing else holds and that is dense.
    """
    if operator is not torch.ops.aten.add.Tensor or len(arguments) != 2 or torch.is_grad_enabled():
        return operator, arguments
    if not _is_engines():
        return operator, arguments
    first, second = arguments
    if not isinstance(second, torch.Tensor) or first.shape != second.shape or first.dtype != second.dtype:
        return operator, arguments
    for kept, added in ((first, second), (second, first)):
        if _is_free(kept):
            return torch.ops.aten.add_.Tensor, (kept, added)
    return operator, arguments


def _is_engines() -> bool:
    """Whether the engine called the operator, and no Python code of a backward formula."""
    frame = sys._getframe(3)
    while frame.f_back is not None and frame.f_code.co_name in _WRAPPERS:
        frame = frame.f_back
    return frame.f_code.co_name == _ENGINE


def _is_free(tensor: torch.Tensor) -> bool:
    storage = tensor.untyped_storage()
    return (
        tensor._use_count() <= _TENSOR_REFERENCES  # type: ignore[attr-defined]
        and _use_count(storage._cdata) <= _STORAGE_REFERENCES
        and storage.nbytes() == tensor.numel() * tensor.element_size()
    )
