"""Tensors with a storage but no memory, and the lifetimes of their storages."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from harness.tools.probe.present_device import library

__all__ = ["KEY", "KEYS", "Storages"]

KEY: Any = torch._C._parse_dispatch_key("Fake")
"""The dispatch key for interception. torch reserves it for tensors without memory, and does not use it."""
KEYS = torch._C.DispatchKeySet(KEY)

_RANGE = 1 << 44


class Storages:
    """Makes tensors without memory, and logs what is allocated and freed on the device.

    To autograd and to all C++ code of torch, such a tensor is an ordinary one: it has no dispatch key of Python. Its
    storage has an address that no other one has or had. A storage of the host is not logged.
    """

    def __init__(self) -> None:
        self._library = library()
        self._start = self._library.probe_range()
        self._library.probe_begin()
        self._numbers: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._made = torch.ops.harness_probe

    def close(self) -> None:
        """Stop logging."""
        self._library.probe_end()

    def has(self, tensor: Tensor) -> bool:
        """Whether a tensor was made here."""
        is_made: bool = 0 <= self.key(tensor) - self._start < _RANGE
        return is_made

    def follows(self, tensor: Any) -> bool:
        """Whether a tensor was created here; false for one without a storage, and for a wrapper of other tensors."""
        try:
            return self.has(tensor)
        except (NotImplementedError, RuntimeError):
            return False

    def holds(self, storage: torch.UntypedStorage) -> bool:
        """Whether a storage was made here."""
        is_made: bool = 0 <= storage.data_ptr() - self._start < _RANGE
        return is_made

    def whole(self, storage: torch.UntypedStorage) -> Tensor:
        """A tensor of all bytes of a storage."""
        tensor: Tensor = self._made.empty([0], [1], torch.uint8, storage.device, 0, 0)
        self._made.become(tensor, storage, [storage.nbytes()], [1], 0)
        return tensor

    def key(self, tensor: Tensor) -> int:
        """A unique number of the tensor's storage.

        No Python object is created for the storage, because autograd reads its reference count.
        """
        address = tensor.data_ptr()
        if address:
            return address - int(tensor.storage_offset()) * tensor.element_size()
        own_address: int = self._made.address(tensor)  # a tensor without elements
        return own_address

    def number(self, tensor: Tensor) -> int:
        """The number of the tensor's block; 0 if it has none."""
        return self._numbers.get(self.key(tensor), 0)

    def size(self, tensor: Tensor) -> int:
        """The bytes of the tensor's storage."""
        return self._sizes[self.key(tensor)]

    def empty(
        self, shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: torch.device, size: int
    ) -> Tensor:
        """A tensor with a storage of `size` bytes."""
        number = self.allocate(size) if size and device.type == "cuda" else 0
        made: Tensor = self._made.empty(shape, stride, dtype, device, size, number)
        self._note(made, size, number)
        return made

    def zeros(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor of zeros that uses no device memory."""
        made: Tensor = self._made.zeros(shape, dtype, device)
        self._note(made, 0, 0)
        return made

    def view(self, of: Tensor, found: Tensor) -> Tensor:
        """A tensor of the same storage with the shape of another."""
        made: Tensor = self._made.view(
            of, found.shape, found.stride(), found.storage_offset(), found.dtype, found.is_conj(), found.is_neg()
        )
        return made

    def become(self, tensor: Tensor, storage: Any, shape: Sequence[int], stride: Sequence[int], offset: int) -> None:
        """Give a tensor another storage and another shape."""
        self._made.become(tensor, storage, shape, stride, offset)

    def resize(self, tensor: Tensor, size: int) -> int:
        """Resize a storage to `size` bytes, then free the old block; return the number of the new block, or 0."""
        number = self.allocate(size) if size and tensor.device.type == "cuda" else 0
        self._made.resize(tensor, size, number)
        self._note(tensor, size, number)
        return number

    def _note(self, tensor: Tensor, size: int, number: int) -> None:
        key = self.key(tensor)
        self._sizes[key], self._numbers[key] = size, number

    def allocate(self, size: int) -> int:
        """Log that a block was allocated; return its number."""
        number: int = self._library.probe_allocated(size)
        return number

    def free(self, number: int) -> None:
        """Log that a block was freed."""
        self._library.probe_freed(number)

    def empty_cache(self) -> None:
        """Log that the cache was emptied."""
        self._library.probe_empty_cache()

    @property
    def live(self) -> int:
        """Bytes that are allocated now."""
        size: int = self._library.probe_live()
        return size

    @property
    def peak(self) -> int:
        """The most bytes that were allocated so far."""
        size: int = self._library.probe_peak()
        return size

    def __len__(self) -> int:
        """The number of events so far."""
        count: int = self._library.probe_count()
        return count

    def events(self) -> list[int]:
        """The events so far, as `Trace.events` has them."""
        recorded: list[int] = self._library.probe_events()[: len(self)]
        return recorded

    def lives(self, count: int) -> Iterator[int]:
        """The numbers of the live blocks among the first `count` allocated ones."""
        numbers = (ctypes.c_int64 * max(count, 1))()
        return iter(numbers[: self._library.probe_lives(numbers)])
