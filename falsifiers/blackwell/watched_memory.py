"""What a subject does with the memory that it was handed: what it holds and writes, and how it takes an error."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from falsifiers.blackwell.device_memory import DeviceMemory

__all__ = ["BrokenMemory", "DeviceFault", "WatchedMemory"]


class WatchedMemory:
    """A device's memory that remembers, without holding them, the tensors that it handed out."""

    def __init__(self, memory: DeviceMemory) -> None:
        """Nothing was handed out yet."""
        self._memory = memory
        self._handed_out: list[weakref.ref[Tensor]] = []

    def tensor(self, shape: Sequence[int]) -> Tensor:
        """See `DeviceMemory`."""
        tensor = self._memory.tensor(shape)
        self._handed_out.append(weakref.ref(tensor))
        return tensor

    def written(self, shape: Sequence[int]) -> int:
        """How many tensors of this shape are held whose last number is finite and not 0: somebody computed it.

        Only that number is copied, to the host: there may be no room on the device for anything.
        """
        held = (reference() for reference in self._handed_out)
        last = [one[(-1,) * len(shape)].cpu() for one in held if one is not None and one.shape == torch.Size(shape)]
        return sum(bool(number.isfinite()) and bool(number != 0) for number in last)

    def load_module(self, size: int) -> None:
        """See `DeviceMemory`."""
        self._memory.load_module(size)

    def used(self) -> int:
        """See `DeviceMemory`."""
        return self._memory.used()

    def reserved(self) -> int:
        """See `DeviceMemory`."""
        return self._memory.reserved()

    def allocated(self) -> int:
        """See `DeviceMemory`."""
        return self._memory.allocated()

    def free(self) -> int:
        """See `DeviceMemory`."""
        return self._memory.free()

    def clear(self) -> None:
        """See `DeviceMemory`."""
        self._memory.clear()


class DeviceFault(RuntimeError):
    """An error of the device that is no lack of memory; a RuntimeError, as torch's own is."""


class BrokenMemory(WatchedMemory):
    """A device's memory that fails at the second tensor, and has room for it."""

    def tensor(self, shape: Sequence[int]) -> Tensor:
        """See `DeviceMemory`.

        Raises:
            DeviceFault: for every tensor but the first.
        """
        if self._handed_out:
            raise DeviceFault("CUDA error: an illegal memory access was encountered")
        return super().tensor(shape)
