"""Tensors at chosen addresses and strides, surrounded by guard values that no kernel may read or write."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LAYOUTS", "Arena", "Placed", "copied", "digest", "fits", "shares_memory"]

LAYOUTS = ("contiguous", "offset", "sliced", "gaps", "transposed", "reversed", "channels-last", "expanded")
"""In order: contiguous; offset by one element from an aligned address; every second element; padded rows; the last two
dimensions transposed in memory; all dimensions reversed; channels last; stride 0 along the first dimension."""
_CANARY = 3
"""Guard elements after each padded row, and after a tensor."""

# Bound before any subject is imported, because a subject could replace them.
_equal, _empty, _set, _clone = torch.equal, torch.empty, torch.Tensor.set_, torch.Tensor.clone
_detach, _view, _copy, _data_ptr = torch.Tensor.detach, torch.Tensor.view, torch.Tensor.copy_, torch.Tensor.data_ptr
_cpu, _contiguous, _fill = torch.Tensor.cpu, torch.Tensor.contiguous, torch.Tensor.fill_
_storage, _numpy, _sha256 = torch.Tensor.untyped_storage, torch.Tensor.numpy, hashlib.sha256
_reshape = torch.Tensor.reshape


@dataclass(frozen=True)
class Placed:
    """A tensor, its memory with the guard values as bytes, and a copy of these bytes from before the call."""

    tensor: Tensor
    whole: Tensor
    before: Tensor

    def is_unchanged(self) -> bool:
        """Whether no byte of the tensor or of its guard values has changed."""
        return bool(_equal(self.whole, self.before))


class Arena:
    """Allocates tensors, on request at the same address or as the same object as before."""

    def __init__(self) -> None:
        self._kept: dict[object, Tensor] = {}

    def place(self, content: Tensor, layout: str, memory: str, slot: int) -> Placed:
        """Allocate a tensor with this content.

        Args:
            content: a dense tensor; for `expanded`, constant along the first dimension.
            layout: one of `LAYOUTS`.
            memory: see `Call.memory`.
            slot: the index of the tensor in the call.
        """
        sizes, strides, offset, extent = _strides(content, layout)
        item = content.element_size()
        if memory == "objects":
            key = (slot, content.dtype, sizes, strides)
            tensor_kept = self._kept.get(key)
            if tensor_kept is None:
                flat = self._flat(extent, content, None)
                tensor_kept = self._kept[key] = torch.as_strided(flat, sizes, strides, offset)
            tensor = tensor_kept
        else:
            flat = self._flat(extent, content, slot if memory == "addresses" else None)
            tensor = torch.as_strided(flat, sizes, strides, offset)
        whole = _set(_empty(0, dtype=content.dtype, device=content.device), _storage(tensor), 0, (extent,), (1,))
        _fill(whole, _poison(content.dtype))
        if content.numel():
            if layout == "expanded":
                torch.as_strided(whole, sizes[1:], strides[1:], offset).copy_(content[0])
            else:
                torch.as_strided(whole, sizes, strides, offset).copy_(content)
        as_bytes = _view(whole, torch.uint8) if extent * item else whole
        return Placed(tensor, as_bytes, _clone(as_bytes))

    def _flat(self, extent: int, content: Tensor, slot: int | None) -> Tensor:
        if slot is None:
            return _empty(extent, dtype=content.dtype, device=content.device)
        bytes_needed = extent * content.element_size()
        buffer = self._kept.get(slot)
        if buffer is None or buffer.numel() < bytes_needed or buffer.device != content.device:
            size = max(1 << 20, 2 * bytes_needed)
            buffer = self._kept[slot] = _empty(size, dtype=torch.uint8, device=content.device)
        return _set(_empty(0, dtype=content.dtype, device=content.device), _storage(buffer), 0, (extent,), (1,))


def fits(shape: tuple[int, ...], layout: str) -> bool:
    """Whether a tensor of this shape can have a layout that differs from contiguous."""
    needed = {"sliced": 1, "gaps": 1, "transposed": 2, "reversed": 3, "expanded": 1}.get(layout, 0)
    if layout == "channels-last":
        return len(shape) == 4
    return len(shape) >= needed and math.prod(shape) > 0


def _strides(content: Tensor, layout: str) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """Return sizes, strides, storage offset, and the number of elements of the memory."""
    sizes = tuple(content.shape)
    order = list(range(len(sizes)))
    if layout == "transposed":
        order[-2:] = order[:-3:-1]
    elif layout == "reversed":
        order.reverse()
    elif layout == "channels-last":
        order = [0, 2, 3, 1]
    step = 2 if layout == "sliced" else 1
    strides = [0] * len(sizes)
    for number, dim in enumerate(reversed(order)):
        strides[dim] = step
        step *= max(1, sizes[dim]) + (_CANARY if layout == "gaps" and number == 0 else 0)
    if layout == "expanded":
        strides[0] = 0
    offset = 0 if layout != "offset" else 1
    extent = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
    return sizes, tuple(strides), offset, max(0, extent if content.numel() else offset) + _CANARY


def _poison(dtype: torch.dtype) -> float | int | bool:
    """Return NaN, or an integer that is no valid index, so that an out-of-bounds read affects the result."""
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype == torch.bool else min(1 << 30, torch.iinfo(dtype).max)


def copied(tensor: Tensor) -> Tensor:
    """Return a dense copy of a plain tensor."""
    return _contiguous(_clone(_detach(tensor)))


def digest(tensors: Iterable[Tensor]) -> str:
    """Return the SHA-256 of dtypes, shapes and bytes."""
    sha256 = _sha256()
    for tensor in tensors:
        sha256.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        dense = _clone(_cpu(_detach(tensor)), memory_format=torch.contiguous_format)
        flat = _reshape(dense, (-1,))
        if flat.numel():
            sha256.update(_numpy(_view(flat, torch.uint8)).data)
    return sha256.hexdigest()


def shares_memory(left: Tensor, right: Tensor) -> bool:
    """Whether the address ranges of two tensors overlap."""
    if not left.numel() or not right.numel() or left.device != right.device:
        return False
    (first, last), (begin, end) = _extent(left), _extent(right)
    return first < end and begin < last


def _extent(tensor: Tensor) -> tuple[int, int]:
    start = _data_ptr(tensor)
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (reach + 1) * tensor.element_size()
