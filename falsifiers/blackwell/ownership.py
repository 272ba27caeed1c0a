"""What the falsifier of the root cause needs from a subject: who owns the bytes of a device, and who is to blame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from falsifiers.blackwell.device_memory import DeviceMemory

__all__ = ["Attribution", "Load", "Owner", "Report"]


class Owner(Enum):
    """Whose a byte of the device is."""

    WEIGHTS = "weights"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    SCORES = "scores"
    """The workspace for attention scores: heads * sequence^2 float32 numbers a block."""
    MODULES = "modules"
    """Kernels' code and tables, which the driver keeps and no allocator sees."""
    SLACK = "slack"
    """What the allocator got from the driver and nobody holds."""
    CONTEXT = "context"
    """The driver's own, and what others held before this process began."""
    UNKNOWN = "unknown"
    """What the allocator handed out to somebody who put it on no account, such as cuBLAS for its workspace."""


@dataclass(frozen=True)
class Load:
    """What is to be put on the device: modules first, then blocks one after the other.

    Attributes:
        model: whose blocks, a name in SHAPES.
        blocks: how many at most; fewer where memory runs out.
        sequence: tokens that workspace and activations are made for.
        modules: how many kernel modules of `module_bytes` each.
    """

    model: str
    blocks: int
    sequence: int
    modules: int
    module_bytes: int


@dataclass(frozen=True)
class Report:
    """What became of a load.

    Attributes:
        blocks: how many were put on the device as a whole; the last of them need not have run its step.
        ran_out: whether memory ran out.
        accounts: the bytes of every owner while all that fitted was there.
        blamed: whom the subject blames for that; None where memory did not run out.
    """

    blocks: int
    ran_out: bool
    accounts: Mapping[Owner, int]
    blamed: Owner | None


class Attribution(Protocol):
    """Something that keeps a ledger; built as `Subject(setting)`."""

    def put(self, load: Load, memory: DeviceMemory) -> Report:
        """Put the load on the device, run a step of every block, and say who owns what; it all stays until the next.

        Every weight and each of its two moments is a tensor of the memory's, in the weight's shape, and held as such.
        An error other than that memory has run out is raised as it came.
        """
        ...
