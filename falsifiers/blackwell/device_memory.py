"""A device's memory as the falsifier of the root cause hands it out: a GPU's, or an arena that stands in for one."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from harness import NotMeasured

__all__ = ["Arena", "CudaMemory", "DeviceMemory", "OutOfDeviceMemory"]

_ROUNDED, _SMALL, _SEGMENT = 512, 2**20, 2 * 2**20
"""Bytes: torch's caching allocator rounds to the first, and shares segments of the last among what the second holds."""
_ARENA_CONTEXT = 2**20
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_MODULE = """.version 6.4
.target sm_75
.address_size 64
.visible .global .align 16 .b8 table[{size}];
.visible .entry touch() {{ ret; }}
"""


class OutOfDeviceMemory(Exception):
    """The device has no room for what was asked."""


class DeviceMemory(Protocol):
    """Memory that can run out, and the three figures that are known of it, all in bytes."""

    def tensor(self, shape: Sequence[int]) -> Tensor:
        """An uninitialised float32 tensor whose last number is NaN until somebody writes it.

        Raises:
            OutOfDeviceMemory: there is no room.
        """
        ...

    def load_module(self, size: int) -> None:
        """Load a kernel module that takes `size` bytes; OutOfDeviceMemory where there is no room."""
        ...

    def used(self) -> int:
        """What the driver says is in use."""
        ...

    def reserved(self) -> int:
        """What the allocator has got from the driver."""
        ...

    def allocated(self) -> int:
        """What the allocator has handed out."""
        ...

    def free(self) -> int:
        """What the driver says is left."""
        ...

    def clear(self) -> None:
        """Unload all modules, and give back what nobody holds any more."""
        ...


class CudaMemory:
    """The memory of the current CUDA device: cudaMemGetInfo and torch's allocator."""

    def __init__(self, device: str) -> None:
        """A first product is made and forgotten, so that the library's own modules count as context."""
        self._device = torch.device(device)
        self._modules: list[ctypes.c_void_p] = []
        self._driver = ctypes.CDLL("libcuda.so.1")
        some = torch.ones(256, 256, device=self._device)
        torch.softmax(some @ some, dim=-1).sum().item()
        del some
        self.clear()

    def tensor(self, shape: Sequence[int]) -> Tensor:
        """See `DeviceMemory`."""
        try:
            tensor = torch.empty(tuple(shape), dtype=torch.float32, device=self._device)
        except torch.OutOfMemoryError as error:
            raise OutOfDeviceMemory(str(error).split(".")[0]) from error
        tensor.view(-1)[-1:].fill_(math.nan)
        return tensor

    def load_module(self, size: int) -> None:
        """See `DeviceMemory`; the module is a kernel that does nothing, and a table as large as others' code.

        Raises:
            NotMeasured: the driver does not load it for another reason than its size.
        """
        module = ctypes.c_void_p()
        status = self._driver.cuModuleLoadData(ctypes.byref(module), _MODULE.format(size=size).encode())
        if status == _OUT_OF_MEMORY:
            raise OutOfDeviceMemory(f"no room for a module of {size} bytes")
        if status != 0:
            raise NotMeasured(f"cuModuleLoadData answers {status} for a module with a table of {size} bytes")
        self._modules.append(module)

    def used(self) -> int:
        """See `DeviceMemory`."""
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    def reserved(self) -> int:
        """See `DeviceMemory`."""
        return int(torch.cuda.memory_reserved())

    def allocated(self) -> int:
        """See `DeviceMemory`."""
        return int(torch.cuda.memory_allocated())

    def free(self) -> int:
        """See `DeviceMemory`."""
        return int(torch.cuda.mem_get_info()[0])

    def clear(self) -> None:
        """See `DeviceMemory`."""
        torch.cuda.synchronize()
        while self._modules:
            self._driver.cuModuleUnload(self._modules.pop())
        torch.cuda.empty_cache()


class Arena:
    """Tensors and modules in the CPU's memory, counted against a limit as on a GPU.

    It rounds and gets segments as torch's allocator does. It knows no fragmentation: what nobody holds any more is
    slack until `clear`, and not handed out again. What operations allocate for their own results is not counted.
    """

    def __init__(self, capacity: int) -> None:
        """Args:
        capacity: bytes, the context's among them.
        """
        self._capacity = capacity
        self._held = {True: 0, False: 0}  # by whether it is small
        self.clear()

    def tensor(self, shape: Sequence[int]) -> Tensor:
        """See `DeviceMemory`."""
        size = _up(4 * torch.Size(shape).numel(), _ROUNDED)
        small = self._small + size if size <= _SMALL else self._small
        large = self._large if size <= _SMALL else self._large + _up(size, _SEGMENT)
        self._need(_up(small, _SEGMENT) + large - self.reserved())
        self._small, self._large = small, large
        self._held[size <= _SMALL] += size
        numbers = np.empty(tuple(shape), dtype=np.float32)
        numbers.reshape(-1)[-1:] = math.nan
        # Every view of the tensor holds these numbers, so they end with the last of them.
        weakref.finalize(numbers, self._give_back, size).atexit = False
        return torch.from_numpy(numbers)

    def load_module(self, size: int) -> None:
        """See `DeviceMemory`."""
        self._need(size)
        self._modules.append(bytearray(size))

    def used(self) -> int:
        """See `DeviceMemory`."""
        return _ARENA_CONTEXT + self.reserved() + sum(map(len, self._modules))

    def reserved(self) -> int:
        """See `DeviceMemory`."""
        return _up(self._small, _SEGMENT) + self._large

    def allocated(self) -> int:
        """See `DeviceMemory`."""
        return sum(self._held.values())

    def free(self) -> int:
        """See `DeviceMemory`."""
        return self._capacity - self.used()

    def clear(self) -> None:
        """See `DeviceMemory`; what somebody still holds stays counted."""
        self._small, self._large = self._held[True], _up(self._held[False], _SEGMENT)
        self._modules: list[bytearray] = []

    def _give_back(self, size: int) -> None:
        self._held[size <= _SMALL] -= size

    def _need(self, size: int) -> None:
        if size > self.free():
            raise OutOfDeviceMemory(f"{size} bytes were asked for, and {self.free()} are left")


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
