"""A Triton kernel that only reads. Importing this module needs Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["BLOCK", "read"]

BLOCK = 4096
"""Numbers that a program loads at a time."""
_PROGRAMS_EACH = 8


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _read(source, sink, blocks, passes, block: tl.constexpr):  # type: ignore[no-untyped-def]
    # .cg keeps the loads out of the first cache, which would otherwise answer later passes.
    offsets = tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for step in range(tl.program_id(0), blocks * passes, tl.num_programs(0)):
        total += tl.load(source + (step % blocks) * block + offsets, cache_modifier=".cg")
    tl.store(sink + tl.program_id(0) * block + offsets, total)


def read(source: Tensor, passes: int) -> Tensor:
    """Read all whole blocks of a float32 tensor `passes` times, and return sums [programs, block] of what was read."""
    processors = torch.cuda.get_device_properties(source.device).multi_processor_count if source.is_cuda else 1
    programs = processors * _PROGRAMS_EACH
    sink = torch.empty(programs, BLOCK, device=source.device)
    _read[(programs,)](source, sink, source.numel() // BLOCK, passes, block=BLOCK)
    return sink
