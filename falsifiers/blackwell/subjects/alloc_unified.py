"""What the falsifier of the choice of allocator needs from a subject."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from torch import Tensor

__all__ = ["Allocator", "AllocatorChoice", "Device"]


class Allocator(Enum):
    """Which call gets memory from the driver."""

    PLAIN = "plain"
    """cuMemAlloc, by way of torch."""
    MANAGED = "managed"
    """cuMemAllocManaged: pages move between host and device as they are touched."""


@dataclass(frozen=True)
class Device:
    """What the choice may depend on.

    Attributes:
        unified_addressing: CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING; true of every CUDA GPU on a 64-bit Linux.
        integrated: CU_DEVICE_ATTRIBUTE_INTEGRATED: device and host share their memory, as on GB10 or Jetson.
        capability: compute capability, (12, 1) for sm_121.
    """

    unified_addressing: bool
    integrated: bool
    capability: tuple[int, int]


class AllocatorChoice(Protocol):
    """The rule, and memory from whom it chose; built as `Subject(setting)`."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        """The allocator for a device.

        Args:
            override: the value of MANAGED_MEMORY: "0", "1" or "auto"; None where it is not set.

        Raises:
            ValueError: the override is another text, or asks for managed memory where addresses are not unified.
        """
        ...

    def device(self) -> Device:
        """The device of this trial as its driver describes it."""
        ...

    def allocate(self, size: int) -> Tensor:
        """One allocation of `size` bytes, uint8, on this device, by the allocator that is chosen without override."""
        ...
