"""The subject of F-ALLOC-UNIFIED-001: the rule that chooses an allocator, and the allocation."""

import ctypes

import torch
from torch import Tensor

from falsifiers.blackwell.subjects.alloc_unified import Allocator, Device
from harness import Setting

_UNIFIED_ADDRESSING, _INTEGRATED, _MAJOR, _MINOR = 41, 18, 75, 76  # CUdevice_attribute
_ATTACH_GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL
_SETTINGS = ("0", "1", "auto")


class IntegratedRule:
    """Managed memory for devices that share the host's memory, and on request.

    The rule ignores the compute capability. cc >= 100, as in PMAT-701, is also true for a discrete B200, whose own
    memory is many times as fast as migrated pages.
    """

    def __init__(self, setting: Setting) -> None:
        """Keep the device; the driver is not called yet."""
        self._device = setting.device

    def choose(self, device: Device, override: str | None) -> Allocator:
        if override not in (None, *_SETTINGS):
            raise ValueError(f"MANAGED_MEMORY is {override!r}; set it to one of {', '.join(_SETTINGS)}, or unset it")
        if override == "1" and not device.unified_addressing:
            raise ValueError("MANAGED_MEMORY=1 needs unified addressing, which this device lacks; set it to auto")
        if override in ("0", "1"):
            return Allocator.MANAGED if override == "1" else Allocator.PLAIN
        return Allocator.MANAGED if device.unified_addressing and device.integrated else Allocator.PLAIN

    def device(self) -> Device:
        """A CPU counts as a device without unified addressing."""
        if self._device == "cpu":
            return Device(unified_addressing=False, integrated=False, capability=(0, 0))
        torch.cuda.init()
        attributes = [_attribute(number) for number in (_UNIFIED_ADDRESSING, _INTEGRATED, _MAJOR, _MINOR)]
        return Device(bool(attributes[0]), bool(attributes[1]), (attributes[2], attributes[3]))

    def allocate(self, size: int) -> Tensor:
        """Raises MemoryError, or RuntimeError from torch, if memory is short."""
        if not size or self.choose(self.device(), None) is Allocator.PLAIN:  # the driver refuses 0 managed bytes
            return torch.empty(size, dtype=torch.uint8, device=self._device)
        return managed(size)


def managed(size: int) -> Tensor:
    """`size` bytes of managed memory as a uint8 tensor on the current device. It is never freed.

    Raises:
        MemoryError: the driver has no such memory.
    """
    torch.cuda.current_stream().synchronize()  # creates the CUDA context
    address = ctypes.c_uint64(0)
    status = _driver().cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(size), _ATTACH_GLOBAL)
    if status != 0:
        raise MemoryError(f"cuMemAllocManaged of {size} bytes returned {status}")
    return torch.as_tensor(_Memory(address.value, size), device="cuda")


class _Memory:
    """An address with the CUDA array interface, from which torch makes a tensor."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def _attribute(number: int) -> int:
    value = ctypes.c_int(0)
    status = _driver().cuDeviceGetAttribute(ctypes.byref(value), number, torch.cuda.current_device())
    if status != 0:
        raise RuntimeError(f"cuDeviceGetAttribute({number}) returned {status}")
    return value.value


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
