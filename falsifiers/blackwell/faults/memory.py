"""A device's memory that fails with an error other than out-of-memory."""

from collections.abc import Sequence

from torch import Tensor

from falsifiers.blackwell.watching.memory import WatchedMemory


class DeviceFault(RuntimeError):
    """A device error that is not an out-of-memory. A RuntimeError, as torch raises for such errors."""


class BrokenMemory(WatchedMemory):
    """Memory that raises at the second tensor although it has room for it."""

    def tensor(self, shape: Sequence[int]) -> Tensor:
        if self._handed_out:
            raise DeviceFault("CUDA error: an illegal memory access was encountered")
        return super().tensor(shape)
