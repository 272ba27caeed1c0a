"""Which tensors of a device a subject holds and has written."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from falsifiers.blackwell.subjects.root_cause import DeviceMemory

__all__ = ["WatchedMemory"]


class WatchedMemory:
    """A device's memory that keeps weak references to the tensors it handed out."""

    def __init__(self, memory: DeviceMemory) -> None:
        """Wrap `memory`; count only tensors that are asked for from now on."""
        self._memory = memory
        self._handed_out: list[weakref.ref[Tensor]] = []

    def tensor(self, shape: Sequence[int]) -> Tensor:
        """See `DeviceMemory`."""
        tensor = self._memory.tensor(shape)
        self._handed_out.append(weakref.ref(tensor))
        return tensor

    def written(self, shape: Sequence[int]) -> int:
        """The number of live tensors of this shape whose last element is finite and not 0, that is, has been computed.

        Copies that one element to the host, because the device may have no memory left.
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
