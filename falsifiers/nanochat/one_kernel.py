"""A small Triton kernel, compiled for a GPU that need not be present.

python -m falsifiers.nanochat.one_kernel 90 121   # in a process of its own, with its environment variables
"""

from __future__ import annotations

import sys
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def _increase(x, y, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, tl.load(x + at, mask=at < count) + 1.0, mask=at < count)


def compiled(capability: int, **options: Any) -> Any:
    """Return what Triton compiles for a capability such as 121: `asm` has "ptx" and "cubin"."""
    types = {"x": "*fp32", "y": "*fp32", "count": "i32", "block": "constexpr"}
    source = ASTSource(triton.jit(_increase), types, {"block": 128})
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options or None)


if __name__ == "__main__":
    for text in sys.argv[1:]:
        compiled(int(text))
