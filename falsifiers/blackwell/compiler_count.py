"""How many kernels the compilers of this process are asked for, whatever is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from falsifiers.blackwell.compilation_watch import CompilationWatch, watching

__all__ = ["CompilerCount", "counting_kernels"]


@dataclass
class CompilerCount:
    """What was seen."""

    nvidia: CompilationWatch
    triton: int = 0
    """Kernels that Triton's compiler was asked for, also where its cache on the disk had them."""

    @property
    def kernels(self) -> int:
        """Those of Triton and of NVRTC."""
        return self.triton + self.nvidia.nvrtc


@contextmanager
def counting_kernels() -> Iterator[CompilerCount]:
    """Count calls of Triton's compiler, and of NVRTC through cuda.bindings; those of other processes are not seen."""
    from triton import knobs

    listener = knobs.compilation.listener
    with watching() as nvidia:
        seen = CompilerCount(nvidia)

        def compiled(**told: Any) -> None:
            seen.triton += 1
            if listener is not None:
                listener(**told)

        knobs.compilation.listener = compiled
        try:
            yield seen
        finally:
            knobs.compilation.listener = listener
