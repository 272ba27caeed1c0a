"""The allocations and frees of a traced program, in order: the interface between tracing and the allocator."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

__all__ = ["EMPTY_CACHE", "Block", "Owner", "Place", "Trace"]

EMPTY_CACHE = 0


class Owner(StrEnum):
    """The purpose of allocated memory."""

    PARAMETERS = "parameters"
    BUFFERS = "buffers"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    INPUTS = "inputs"
    WORKSPACES = "workspaces"
    TEMPORARIES = "temporaries"


class Place(NamedTuple):
    """Where memory was requested.

    Attributes:
        phase: `build`, `step 1` or `step 2`, with `forward`, `backward` or `optimizer`.
        operator: the operator of torch.
        line: the line of the user's code, as `file:line`.
        library: the innermost line outside torch, if that is in a library; otherwise empty.
        module: the path of the module, such as `Qwen2ForCausalLM.model.layers.3.mlp`; empty outside modules.
    """

    phase: str
    operator: str
    line: str
    library: str
    module: str


@dataclass(slots=True)
class Block:
    """One storage on the device.

    Attributes:
        bytes: what was requested.
        module: the module that the storage belongs to. For a parameter, its gradient and its optimizer's state, that is
            the module that has the parameter; otherwise the one that ran. Empty if there is none.
    """

    bytes: int
    place: Place
    module: str
    stream: int = 0
    owner: Owner = Owner.TEMPORARIES


@dataclass(slots=True)
class Trace:
    """Blocks and events.

    Attributes:
        blocks: all blocks, in the order of their allocation; the first is number 1.
        events: `n` if block n was allocated, `-n` if it was freed, 0 if the cache was emptied.
        starts: the name of each phase and the number of events before it.
        unmeasured: the executed operators whose memory has not been measured.
    """

    blocks: list[Block] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    starts: list[tuple[str, int]] = field(default_factory=list)
    unmeasured: set[str] = field(default_factory=set)

    def allocate(self, block: Block) -> int:
        self.blocks.append(block)
        number = len(self.blocks)
        self.events.append(number)
        return number

    def free(self, number: int) -> None:
        self.events.append(-number)
