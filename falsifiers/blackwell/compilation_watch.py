"""Compilations as a process's own calls of NVIDIA's libraries show them, whatever the subject says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["JIT_DISABLED", "CompilationWatch", "watching"]

JIT_DISABLED: Final = "CUDA_ERROR_JIT_COMPILATION_DISABLED"
"""What the driver says to PTX where CUDA_DISABLE_PTX_JIT=1."""

_LOADS: Final = ("cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoad", "cuModuleLoadFatBinary", "cuLibraryLoadData")


@dataclass
class CompilationWatch:
    """What was seen: calls of NVRTC's compiler, and loads that the driver refused because it may not compile."""

    nvrtc: int = 0
    refused: int = 0


@contextmanager
def watching() -> Iterator[CompilationWatch]:
    """Count while the subject works: calls through cuda.bindings are seen, compilers in other processes are not."""
    from cuda.bindings import driver, nvrtc

    seen = CompilationWatch()
    replaced: list[tuple[Any, str, Any]] = []

    def watch(module: Any, name: str, on_answer: Callable[[Any], None]) -> None:
        original = getattr(module, name)

        def call(*arguments: Any) -> Any:
            answer = original(*arguments)
            on_answer(answer)
            return answer

        replaced.append((module, name, original))
        setattr(module, name, call)

    def compiled(answer: Any) -> None:
        seen.nvrtc += 1

    def loaded(answer: Any) -> None:
        seen.refused += answer[0].name == JIT_DISABLED

    watch(nvrtc, "nvrtcCompileProgram", compiled)
    for name in _LOADS:
        watch(driver, name, loaded)
    try:
        yield seen
    finally:
        for module, name, original in replaced:
            setattr(module, name, original)
