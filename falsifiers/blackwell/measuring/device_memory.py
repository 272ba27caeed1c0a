"""The memory that F-BLACKWELL-ROOTCAUSE-001 hands to a subject: a GPU's, or a limited arena on the CPU."""

import ctypes
import math
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from falsifiers.blackwell.subjects.root_cause import OutOfDeviceMemory
from harness import NotMeasured

_ROUNDED, _SMALL, _SEGMENT = 512, 2**20, 2 * 2**20
"""Bytes. torch's caching allocator rounds sizes up to _ROUNDED. Tensors up to _SMALL share segments of _SEGMENT."""
_ARENA_CONTEXT = 2**20
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_MODULE = """.version 6.4
.target sm_75
.address_size 64
.visible .global .align 16 .b8 table[{size}];
.visible .entry touch() {{ ret; }}
"""


class CudaMemory:
    """The memory of the current CUDA device: cudaMemGetInfo and torch's allocator. See `DeviceMemory`."""

    def __init__(self, device: str) -> None:
        """Run one product and one softmax first, so that the libraries' own modules count as context."""
        self._device = torch.device(device)
        self._modules: list[ctypes.c_void_p] = []
        self._driver = ctypes.CDLL("libcuda.so.1")
        ones = torch.ones(256, 256, device=self._device)
        torch.softmax(ones @ ones, dim=-1).sum().item()
        del ones
        self.clear()

    def tensor(self, shape: Sequence[int]) -> Tensor:
        try:
            tensor = torch.empty(tuple(shape), dtype=torch.float32, device=self._device)
        except torch.OutOfMemoryError as error:
            raise OutOfDeviceMemory(str(error).split(".")[0]) from error
        tensor.view(-1)[-1:].fill_(math.nan)
        return tensor

    def load_module(self, size: int) -> None:
        """See `DeviceMemory`; the module is an empty kernel and a table of `size` bytes.

        Raises:
            NotMeasured: the driver refuses the module for a reason other than memory.
        """
        module = ctypes.c_void_p()
        status = self._driver.cuModuleLoadData(ctypes.byref(module), _MODULE.format(size=size).encode())
        if status == _OUT_OF_MEMORY:
            raise OutOfDeviceMemory(f"no room for a module of {size} bytes")
        if status != 0:
            raise NotMeasured(f"cuModuleLoadData returned {status} for a module with a table of {size} bytes")
        self._modules.append(module)

    def used(self) -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    def reserved(self) -> int:
        return int(torch.cuda.memory_reserved())

    def allocated(self) -> int:
        return int(torch.cuda.memory_allocated())

    def free(self) -> int:
        return int(torch.cuda.mem_get_info()[0])

    def clear(self) -> None:
        torch.cuda.synchronize()
        while self._modules:
            self._driver.cuModuleUnload(self._modules.pop())
        torch.cuda.empty_cache()


class Arena:
    """Tensors and modules in the CPU's memory, counted against a limit as on a GPU.

    It rounds sizes and uses segments as torch's allocator does. It does not model fragmentation: a freed tensor is
    slack until `clear` and its bytes are not handed out again. Memory that operations allocate for their own results
    is not counted.
    """

    def __init__(self, capacity: int) -> None:
        """Args:
        capacity: bytes, including the context.
        """
        self._capacity = capacity
        self._held = {True: 0, False: 0}  # key: whether the tensor is small
        self.clear()

    def tensor(self, shape: Sequence[int]) -> Tensor:
        size = _up(4 * torch.Size(shape).numel(), _ROUNDED)
        small = self._small + size if size <= _SMALL else self._small
        large = self._large if size <= _SMALL else self._large + _up(size, _SEGMENT)
        self._need(_up(small, _SEGMENT) + large - self.reserved())
        self._small, self._large = small, large
        self._held[size <= _SMALL] += size
        numbers = np.empty(tuple(shape), dtype=np.float32)
        numbers.reshape(-1)[-1:] = math.nan
        # Every view of the tensor refers to this array, so it is freed together with the last view.
        weakref.finalize(numbers, self._give_back, size).atexit = False
        return torch.from_numpy(numbers)

    def load_module(self, size: int) -> None:
        self._need(size)
        self._modules.append(bytearray(size))

    def used(self) -> int:
        return _ARENA_CONTEXT + self.reserved() + sum(map(len, self._modules))

    def reserved(self) -> int:
        return _up(self._small, _SEGMENT) + self._large

    def allocated(self) -> int:
        return sum(self._held.values())

    def free(self) -> int:
        return self._capacity - self.used()

    def clear(self) -> None:
        """See `DeviceMemory`; tensors that are still referenced stay counted."""
        self._small, self._large = self._held[True], _up(self._held[False], _SEGMENT)
        self._modules: list[bytearray] = []

    def _give_back(self, size: int) -> None:
        self._held[size <= _SMALL] -= size

    def _need(self, size: int) -> None:
        if size > self.free():
            raise OutOfDeviceMemory(f"requested {size} bytes; {self.free()} are free")


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
