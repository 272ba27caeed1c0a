"""How the kernels of HSTU attention are divided into programs."""

from typing import NamedTuple

import torch


class Blocks(NamedTuple):
    """How a kernel is divided into programs.

    Attributes:
        rows, keys: of a block.
        warps: of a program.
        stages: pipeline stages of the loads.
        tma: the tensor memory accelerator loads whole blocks.
        merged: with only a causal mask, the block on the diagonal is in the loop of the unmasked blocks.
        together: heads that alternate; 0 to begin with the longest sequences, head by head.
        hopper: stages of the ring, and programs on a multiprocessor, of the kernel in `hstu_hopper` that replaces this
            one for a causal mask alone in bfloat16; None for no such kernel.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    tma: bool = True
    merged: bool = False
    together: int = 0
    hopper: tuple[int, int] | None = None


class Plan(NamedTuple):
    """The blocks of the three kernels: of the output, of the gradient of q, and of those of k and v."""

    out: Blocks
    dq: Blocks
    dkdv: Blocks


_WIDE, _TALL = Blocks(16, 32, 4, 1, tma=False), Blocks(32, 16, 4, 1, tma=False)
_INTERPRETED = Plan(_TALL._replace(merged=True, together=2), _TALL, _WIDE._replace(merged=True))
_HOPPER: dict[int, tuple[tuple[int, int] | None, ...]] = {
    32: ((4, 2), (4, 2), (4, 2)), 64: ((3, 1), (2, 1), (2, 1)), 128: ((3, 1), (3, 1), (2, 1)),
}  # fmt: skip


def plan_for(width: int, value_width: int, max_seqlen: int, device: torch.device) -> Plan:
    """Return the blocks that were fastest on an H200, or small ones for the interpreter."""
    if device.type != "cuda":
        return _INTERPRETED
    short = {"merged": True, "together": side_by_side(max_seqlen, width, value_width)}
    if max(width, value_width) < 128:
        plan = Plan(Blocks(64, 64, 4, 3, **short), Blocks(64, 64, 4, 3, **short), Blocks(32, 64, 4, 3, **short))
    elif max_seqlen < 2048:
        plan = Plan(Blocks(64, 64, 4, 3, **short), Blocks(64, 64, 4, 2, **short), Blocks(64, 64, 4, 2, **short))
    else:
        plan = Plan(Blocks(64, 64, 4, 3), Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 2))
    capability = torch.cuda.get_device_capability(device)
    if capability == (9, 0):
        plan = Plan(*(blocks._replace(hopper=one) for blocks, one in zip(plan, _HOPPER[width], strict=True)))
    return plan if capability[0] >= 9 else Plan(*(blocks._replace(tma=False) for blocks in plan))


def side_by_side(max_seqlen: int, width: int, value_width: int) -> int:
    """Return how many heads may alternate: their keys and values fill a third of an H200's cache, 16 MiB."""
    return max(1, (16 << 20) // (max_seqlen * (width + value_width) * 2))
