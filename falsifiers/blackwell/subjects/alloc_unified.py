"""What F-ALLOC-UNIFIED-001 needs from a subject: a rule that chooses an allocator, and an allocation."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from torch import Tensor


class Allocator(Enum):
    """The driver call that allocates memory."""

    PLAIN = "plain"
    """cuMemAlloc, called through torch."""
    MANAGED = "managed"
    """cuMemAllocManaged. Pages move between host and device when they are touched."""


@dataclass(frozen=True)
class Device:
    """The attributes that the choice may depend on.

    Attributes:
        unified_addressing: CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING; true for every CUDA GPU on 64-bit Linux.
        integrated: CU_DEVICE_ATTRIBUTE_INTEGRATED; true if device and host share memory, as on GB10 or Jetson.
        capability: compute capability, (12, 1) for sm_121.
    """

    unified_addressing: bool
    integrated: bool
    capability: tuple[int, int]


class AllocatorChoice(Protocol):
    """The rule, and memory from the allocator that it chooses; built as `Subject(setting)`."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        """The allocator for a device.

        Args:
            override: the value of MANAGED_MEMORY: "0", "1" or "auto"; None if it is not set.

        Raises:
            ValueError: the override has another value, or requests managed memory without unified addressing.
        """
        ...

    def device(self) -> Device:
        """The device of this trial, as its driver describes it; on a CPU, Device(False, False, (0, 0))."""
        ...

    def allocate(self, size: int) -> Tensor:
        """`size` bytes as uint8 [size] on this device, from the allocator that the rule chooses without an override.

        Raises:
            MemoryError, RuntimeError: there is no room.
        """
        ...
