"""The kernel that `benchmarks/wasted_gpu.py` compiles again and again."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["store_step"]


@triton.jit
def store_step(target, step: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store a step that is a constant of the kernel: each value needs a kernel of its own."""
    tl.store(target, step)
