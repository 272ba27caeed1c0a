"""What F-BLACKWELL-ROOTCAUSE-001 needs from a subject: an account of a device's bytes, and the owner it blames."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

import torch
from torch import Tensor

STEP_RATE: Final = 1e-3
"""A step subtracts so much of the gradient from each weight."""
_STEP_TOKENS: Final = 1024


class Owner(Enum):
    """The owner of a byte of the device."""

    WEIGHTS = "weights"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    SCORES = "scores"
    """The workspace for attention scores: heads * sequence^2 float32 numbers per block."""
    MODULES = "modules"
    """Code and tables of kernels. The driver holds them; the allocator does not see them."""
    SLACK = "slack"
    """Bytes that the allocator reserved from the driver and has not handed out."""
    CONTEXT = "context"
    """The driver's own bytes, and those in use by other processes before this one started."""
    UNKNOWN = "unknown"
    """Bytes that the allocator handed out on no account, such as the workspace of cuBLAS."""


@dataclass(frozen=True)
class Load:
    """What to put on the device: modules first, then one block after the other.

    Attributes:
        model: a name in SHAPES.
        blocks: the largest number of blocks; fewer if memory runs out.
        sequence: tokens that workspace and activations have room for.
        modules: number of kernel modules, each of `module_bytes` bytes.
    """

    model: str
    blocks: int
    sequence: int
    modules: int
    module_bytes: int


@dataclass(frozen=True)
class Report:
    """The result of a load.

    Attributes:
        blocks: blocks that are on the device completely. The last one need not have run its step.
        ran_out: whether memory ran out.
        accounts: bytes by owner, with everything that fitted on the device.
        blamed: the owner that the subject blames; None if memory did not run out.
    """

    blocks: int
    ran_out: bool
    accounts: Mapping[Owner, int]
    blamed: Owner | None


@dataclass(frozen=True)
class Trained:
    """A weight after its block's step: its gradient in that step was `mean`, and the square of it `square`."""

    weight: Tensor
    mean: Tensor
    square: Tensor


def step_input(load: Load, hidden: int, device: torch.device) -> Tensor:
    """The input of every step, float32 [1, tokens, hidden], and the gradient of its output as well."""
    tokens = min(load.sequence, _STEP_TOKENS)
    return torch.arange(tokens * hidden, dtype=torch.float32, device=device).sin().view(1, tokens, hidden)


class OutOfDeviceMemory(Exception):
    """The device has no room for a requested tensor or module."""


class DeviceMemory(Protocol):
    """Memory that can run out, with its counters. All sizes are in bytes."""

    def tensor(self, shape: Sequence[int]) -> Tensor:
        """An uninitialised float32 tensor whose last element is NaN.

        Raises:
            OutOfDeviceMemory: there is no room.
        """
        ...

    def load_module(self, size: int) -> None:
        """Load a kernel module of `size` bytes; raises OutOfDeviceMemory if there is no room."""
        ...

    def used(self) -> int:
        """Bytes in use, as the driver reports them."""
        ...

    def reserved(self) -> int:
        """Bytes that the allocator holds from the driver."""
        ...

    def allocated(self) -> int:
        """Bytes that the allocator has handed out."""
        ...

    def free(self) -> int:
        """Free bytes, as the driver reports them."""
        ...

    def clear(self) -> None:
        """Unload all modules, and return segments without a live tensor to the driver."""
        ...


class Attribution(Protocol):
    """Accounts for the memory of a device; built as `Subject(setting)`."""

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        """Put the load on the device, run one step of every block, and report the bytes of every owner.

        The load stays on the device until the next call. Every weight and each of its two moments is a tensor from
        `memory`, in the weight's shape, and the subject keeps it. Errors other than out-of-memory are raised unchanged.
        """
        ...

    def last_block(self) -> Mapping[str, Trained]:
        """The weights of the last block of a load that fitted, by the names of the claims, after its step."""
        ...
