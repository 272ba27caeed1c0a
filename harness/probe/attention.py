"""Which implementation of scaled dot product attention torch chooses on a CUDA device."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.probe.device import Device
from harness.probe.errors import ProbeError

__all__ = ["AttentionChoice"]

_HALF = (torch.float16, torch.bfloat16)


class AttentionChoice(TorchFunctionMode):
    """Chooses as `sdp_utils.cpp` of torch does for the device; without a GPU, torch itself cannot."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._is_ampere = device.capability >= (8, 0)

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        keywords = keywords or {}
        if function is torch.nn.functional.scaled_dot_product_attention:
            return self._attend(*arguments, **keywords)
        return function(*arguments, **keywords)

    def _attend(
        self,
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
        aten: Any = torch.ops.aten
        result: torch.Tensor
        if query.device.type != "cuda":
            result = aten.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
            return result
        mask = _as_bias(attn_mask, query.dtype)
        if settings.flash_sdp_enabled() and self._is_flash_able(query, key, value, mask, is_causal, enable_gqa):
            return _flash(query, key, value, dropout_p, is_causal, scale)
        if settings.mem_efficient_sdp_enabled() and _is_efficient_able(query, key, value, enable_gqa):
            return _efficient(query, key, value, mask, dropout_p, is_causal, scale)
        if not settings.math_sdp_enabled():
            raise ProbeError("no enabled implementation of scaled_dot_product_attention takes these tensors")
        result = aten._scaled_dot_product_attention_math(
            query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]
        return result

    def _is_flash_able(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        is_causal: bool,
        enable_gqa: bool,
    ) -> bool:
        return (
            self._is_ampere
            and mask is None
            and query.dim() == 4
            and query.dtype in _HALF
            and query.dtype == key.dtype == value.dtype
            and query.size(-1) == key.size(-1) == value.size(-1) <= 256
            and not (is_causal and query.size(-2) != key.size(-2))
            and _are_heads_alike(query, key, value, enable_gqa)
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
    needs_grad = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
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
    bias = torch.zeros_like(mask, dtype=dtype)
    return bias.masked_fill_(mask.logical_not(), float("-inf"))
