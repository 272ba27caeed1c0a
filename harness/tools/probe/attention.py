"""Which implementation of scaled dot product attention torch chooses on a CUDA device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.tools.probe.device_table import Device
from harness.tools.probe.errors import ProbeError

__all__ = ["attention_of"]

_HALF = (torch.float16, torch.bfloat16)


@contextmanager
def attention_of(device: Device) -> Iterator[None]:
    """Let scaled_dot_product_attention choose as `sdp_utils.cpp` of torch does on the device.

    Without a GPU, torch itself cannot choose, or silently chooses the implementation with explicit scores.
    """

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        settings: Any = torch.backends.cuda
        mask = _as_bias(attn_mask, query.dtype)
        call = _Call(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)
        if attn_mask is None or attn_mask.stride(-1) == 1:  # none of these takes a mask whose rows are scattered
            if settings.cudnn_sdp_enabled() and call.is_for_cudnn(device):
                return call.by_cudnn()
            if settings.flash_sdp_enabled() and device.capability >= (8, 0) and call.is_for_flash():
                return call.by_flash()
            if settings.mem_efficient_sdp_enabled() and call.is_for_efficient():
                return call.by_efficient()
        if not settings.math_sdp_enabled():
            raise ProbeError("no enabled implementation of scaled_dot_product_attention takes these tensors")
        return call.by_scores()

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for dispatch_key in ("AutogradCUDA", "CUDA"):
        library.impl("scaled_dot_product_attention", attend, dispatch_key)
    try:
        yield
    finally:
        library._destroy()


@dataclass(frozen=True)
class _Call:
    """A call of scaled_dot_product_attention: which implementations take it, and what each of them does."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    """A floating-point bias."""
    dropout: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool

    def is_for_flash(self) -> bool:
        return (
            self.mask is None
            and self._is_plain(_HALF)
            and self._is_narrow()
            and not (self.is_causal and self.query.size(-2) != self.key.size(-2))
            and self._are_heads_alike()
        )

    def is_for_cudnn(self, device: Device) -> bool:
        """torch prefers cuDNN on Hopper and on Blackwell's data center chips (`check_prefer_cudnn_attention`)."""
        return (
            device.capability in ((9, 0), (10, 0))
            and "TORCH_CUDNN_SDPA_DEPRIORITIZED" not in os.environ
            and self._is_plain(_HALF)
            and self._is_narrow()
            and self.query.size(-1) % 8 == 0
            and self.query.size(-2) > 1
            and self._are_heads_alike()
            and not (self.mask is not None and self.mask.requires_grad)
        )

    def is_for_efficient(self) -> bool:
        alignment = 8 if self.query.dtype in _HALF else 4
        return (
            self._is_plain((*_HALF, torch.float32))
            and not self.enable_gqa
            and self.query.size(1) == self.key.size(1) == self.value.size(1)
            and self.query.size(-1) % alignment == 0
            and self.value.size(-1) % alignment == 0
        )

    def _is_plain(self, dtypes: tuple[torch.dtype, ...]) -> bool:
        """Whether the tensors have four dimensions and one of these types, and their rows lie together."""
        return (
            self.query.dim() == 4
            and self.query.dtype in dtypes
            and self.query.dtype == self.key.dtype == self.value.dtype
            and all(each.stride(-1) == 1 for each in (self.query, self.key, self.value))
        )

    def _is_narrow(self) -> bool:
        return self.query.size(-1) == self.key.size(-1) == self.value.size(-1) <= 256

    def _are_heads_alike(self) -> bool:
        heads, of_key = self.query.size(1), self.key.size(1)
        return of_key == self.value.size(1) and (heads % of_key == 0 if self.enable_gqa else heads == of_key)

    def _needs_grad(self) -> bool:
        return torch.is_grad_enabled() and any(each.requires_grad for each in (self.query, self.key, self.value))

    def by_cudnn(self) -> Tensor:
        result: Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(
            self.query, self.key, self.value, self.mask,
            self._needs_grad(), self.dropout, self.is_causal, False, scale=self.scale,
        )[0]  # fmt: skip
        return result

    def by_flash(self) -> Tensor:
        query, key, value, scale = self.query, self.key, self.value, self.scale
        width = query.size(-1)
        padding = -width % 8
        if padding:
            scale = width**-0.5 if scale is None else scale
            query, key, value = (torch.nn.functional.pad(each, [0, padding]) for each in (query, key, value))
        result: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, self.dropout, self.is_causal, False, scale=scale
        )[0]
        return result[..., :width] if padding else result

    def by_efficient(self) -> Tensor:
        query, mask = self.query, self.mask
        if mask is not None:
            length = mask.size(-1)
            if length % 16:
                mask = torch.nn.functional.pad(mask, [0, -length % 16])[..., :length]
            mask = mask.expand(query.size(0), query.size(1), query.size(2), self.key.size(2))
        result: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
            query, self.key, self.value, mask, self._needs_grad(), self.dropout, self.is_causal, scale=self.scale
        )[0]
        return result

    def by_scores(self) -> Tensor:
        """Return what `_scaled_dot_product_attention_math` does, which cannot add in place to fake tensors."""
        query, key, value, mask = self.query, self.key, self.value, self.mask
        dtype = query.dtype
        settings: Any = torch.backends.cuda
        if dtype in _HALF and not settings.fp16_bf16_reduction_math_sdp_allowed():
            query, key, value = query.float(), key.float(), value.float()
        factor = (query.size(-1) ** -0.5 if self.scale is None else self.scale) ** 0.5
        query = query * factor
        if self.is_causal:
            shape = query.size(-2), key.size(-2)
            mask = _as_bias(torch.ones(shape, dtype=torch.bool, device=query.device).tril(), query.dtype)
        groups = query.size(-3) // key.size(-3) if query.dim() > 3 else 1
        if groups > 1:
            key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
        scores = query @ (key.transpose(-2, -1) * factor)
        if mask is not None:
            scores.add_(mask)
        scores = torch.ops.aten._safe_softmax(scores, -1)
        if self.dropout:
            scores = torch.nn.functional.dropout(scores, self.dropout)
        result: Tensor = (scores @ value).to(dtype)
        return result


def _as_bias(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.where(mask, torch.zeros((), dtype=dtype, device=mask.device), float("-inf")).to(dtype)
