"""How many kernels the compilers of this process are asked for, whatever is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["CompilerCount", "counting_kernels"]


@dataclass
class CompilerCount:
    """Kernels that Triton or NVRTC was asked for; Triton's count also where its cache on the disk had them."""

    kernels: int = 0


@contextmanager
def counting_kernels() -> Iterator[CompilerCount]:
    """Count calls of Triton's compiler, and of NVRTC through cuda.bindings; those of other processes are not seen."""
    from cuda.bindings import nvrtc
    from triton import knobs

    seen = CompilerCount()
    listener, compile_program = knobs.compilation.listener, nvrtc.nvrtcCompileProgram

    def compiled(**told: Any) -> None:
        seen.kernels += 1
        if listener is not None:
            listener(**told)

    def compiling(*arguments: Any) -> Any:
        seen.kernels += 1
        return compile_program(*arguments)

    knobs.compilation.listener, nvrtc.nvrtcCompileProgram = compiled, compiling
    try:
        yield seen
    finally:
        knobs.compilation.listener, nvrtc.nvrtcCompileProgram = listener, compile_program
