"""Which implementation of scaled dot product attention torch chooses on a CUDA device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.probe.device_table import Device
from harness.probe.errors import ProbeError

__all__ = ["attention_of"]

_HALF = (torch.float16, torch.bfloat16)


@contextmanager
def attention_of(device: Device) -> Iterator[None]:
    """Let scaled_dot_product_attention choose as `sdp_utils.cpp` of torch does on the device.

    Without a GPU torch itself cannot choose, or silently chooses the implementation with explicit scores.
    """

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        settings: Any = torch.backends.cuda
        mask = _as_bias(attn_mask, query.dtype)
        if settings.cudnn_sdp_enabled() and _is_cudnn_able(device, query, key, value, mask, enable_gqa):
            return _cudnn(query, key, value, mask, dropout_p, is_causal, scale)
        may_flash = settings.flash_sdp_enabled() and device.capability >= (8, 0)
        if may_flash and _is_flash_able(query, key, value, mask, is_causal, enable_gqa):
            return _flash(query, key, value, dropout_p, is_causal, scale)
        if settings.mem_efficient_sdp_enabled() and _is_efficient_able(query, key, value, enable_gqa):
            return _efficient(query, key, value, mask, dropout_p, is_causal, scale)
        if not settings.math_sdp_enabled():
            raise ProbeError("no enabled implementation of scaled_dot_product_attention takes these tensors")
        return _math(query, key, value, mask, dropout_p, is_causal, scale)

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for dispatch_key in ("AutogradCUDA", "CUDA"):
        library.impl("scaled_dot_product_attention", attend, dispatch_key)
    try:
        yield
    finally:
        library._destroy()


def _is_flash_able(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    enable_gqa: bool,
) -> bool:
    return (
        mask is None
        and query.dim() == 4
        and query.dtype in _HALF
        and query.dtype == key.dtype == value.dtype
        and query.size(-1) == key.size(-1) == value.size(-1) <= 256
        and not (is_causal and query.size(-2) != key.size(-2))
        and _are_heads_alike(query, key, value, enable_gqa)
        and all(each.stride(-1) == 1 for each in (query, key, value))
    )


def _is_cudnn_able(
    device: Device,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    enable_gqa: bool,
) -> bool:
    """torch prefers cuDNN on Hopper and on Blackwell's data center chips (`check_prefer_cudnn_attention`)."""
    return (
        device.capability in ((9, 0), (10, 0))
        and "TORCH_CUDNN_SDPA_DEPRIORITIZED" not in os.environ
        and query.dim() == 4
        and query.dtype in _HALF
        and query.dtype == key.dtype == value.dtype
        and query.size(-1) == key.size(-1) == value.size(-1) <= 256
        and query.size(-1) % 8 == 0
        and query.size(-2) > 1
        and _are_heads_alike(query, key, value, enable_gqa)
        and not (mask is not None and mask.requires_grad)
        and all(each.stride(-1) == 1 for each in (query, key, value))
    )


def _is_efficient_able(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> bool:
    alignment = 8 if query.dtype in _HALF else 4
    return (
        query.dim() == 4
        and query.dtype in (*_HALF, torch.float32)
        and query.dtype == key.dtype == value.dtype
        and not enable_gqa
        and query.size(1) == key.size(1) == value.size(1)
        and query.size(-1) % alignment == 0
        and value.size(-1) % alignment == 0
        and all(each.stride(-1) == 1 for each in (query, key, value))
    )


def _are_heads_alike(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> bool:
    if key.size(1) != value.size(1):
        return False
    return query.size(1) % key.size(1) == 0 if enable_gqa else query.size(1) == key.size(1)


def _cudnn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    result: torch.Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(
        query, key, value, mask, _needs_grad(query, key, value), dropout, is_causal, False, scale=scale
    )[0]
    return result


def _math(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """With explicit scores, as `_scaled_dot_product_attention_math`, which does not add in place to fake tensors."""
    dtype = query.dtype
    settings: Any = torch.backends.cuda
    if dtype in _HALF and not settings.fp16_bf16_reduction_math_sdp_allowed():
        query, key, value = query.float(), key.float(), value.float()
    factor = (query.size(-1) ** -0.5 if scale is None else scale) ** 0.5
    query = query * factor
    if is_causal:
        shape = query.size(-2), key.size(-2)
        mask = _as_bias(torch.ones(shape, dtype=torch.bool, device=query.device).tril(), query.dtype)
    groups = query.size(-3) // key.size(-3) if query.dim() > 3 else 1
    if groups > 1:
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    scores = query @ (key.transpose(-2, -1) * factor)
    if mask is not None:
        scores.add_(mask)
    scores = torch.ops.aten._safe_softmax(scores, -1)
    if dropout:
        scores = torch.nn.functional.dropout(scores, dropout)
    result: torch.Tensor = (scores @ value).to(dtype)
    return result


def _needs_grad(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(each.requires_grad for each in tensors)


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout: float, is_causal: bool, scale: float | None
) -> torch.Tensor:
    width = query.size(-1)
    padding = -width % 8
    if padding:
        scale = width**-0.5 if scale is None else scale
        query, key, value = (torch.nn.functional.pad(each, [0, padding]) for each in (query, key, value))
    result: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, dropout, is_causal, False, scale=scale
    )[0]
    return result[..., :width] if padding else result


def _efficient(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    needs_grad = _needs_grad(query, key, value)
    if mask is not None:
        length = mask.size(-1)
        if length % 16:
            mask = torch.nn.functional.pad(mask, [0, -length % 16])[..., :length]
        mask = mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
    result: torch.Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, needs_grad, dropout, is_causal, scale=scale
    )[0]
    return result


def _as_bias(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.where(mask, torch.zeros((), dtype=dtype, device=mask.device), float("-inf")).to(dtype)
