"""Compilations of kernels: forbidden in the driver, and counted in the compilers of this process."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from harness import NotMeasured

NO_JIT: Final = "CUDA_DISABLE_PTX_JIT"
CACHE_VARIABLES: Final = ("CUDA_CACHE_PATH", "CUDA_CACHE_DISABLE")

JIT_DISABLED: Final = "CUDA_ERROR_JIT_COMPILATION_DISABLED"
"""The driver's answer to PTX if CUDA_DISABLE_PTX_JIT=1."""

_LOADS: Final = ("cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoad", "cuModuleLoadFatBinary", "cuLibraryLoadData")


def forbid_compiling(workspace: Path) -> Path:
    """Set variables, here and for child processes, so that the driver refuses PTX and caches what it compiles anyway.

    Returns:
        The driver's compute cache, an empty folder.

    Raises:
        NotMeasured: CUDA has started in this process; the driver reads its environment only then.
    """
    if torch.cuda.is_initialized():
        raise NotMeasured("CUDA started before its environment was set, so the driver's compilations cannot be seen")
    computed = workspace / "compute-cache"
    computed.mkdir()
    path, disable = CACHE_VARIABLES
    os.environ |= {NO_JIT: "1", path: str(computed), disable: "0"}
    os.environ.pop("CUDA_FORCE_PTX_JIT", None)
    return computed


def see_that_ptx_is_refused() -> None:
    """Check that the driver refuses PTX. Without that, a count of 0 compilations proves nothing.

    Raises:
        NotMeasured: the driver compiled the PTX, or gave another answer.
    """
    from falsifiers.blackwell.reference.cuda_device import CudaDevice, DriverError
    from falsifiers.blackwell.reference.kernels.catalogue import add
    from falsifiers.blackwell.reference.kernels.nvrtc import Form, compile_kernel

    device = CudaDevice()
    try:
        device.load(add(), compile_kernel(add(), device.sm, Form.PTX))
    except DriverError as error:
        if error.name == JIT_DISABLED:
            return
        raise NotMeasured(f"the driver answered PTX with {error.name}, not with {JIT_DISABLED}") from error
    raise NotMeasured(f"{NO_JIT}=1 has no effect here: the driver compiled our PTX")


@dataclass
class CompilationWatch:
    """Calls of NVRTC's compiler, and loads that the driver refused because it may not compile."""

    nvrtc: int = 0
    refused: int = 0


@contextmanager
def watching() -> Iterator[CompilationWatch]:
    """Count calls through cuda.bindings until the block ends. Compilers in other processes are not seen."""
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


@dataclass
class CompilerCount:
    """Kernels that Triton and NVRTC compiled in this process."""

    nvidia: CompilationWatch
    triton: int = 0
    """Kernels requested from Triton's compiler, including those that its disk cache had."""

    @property
    def kernels(self) -> int:
        """Kernels of Triton and of NVRTC."""
        return self.triton + self.nvidia.nvrtc


@contextmanager
def counting_kernels() -> Iterator[CompilerCount]:
    """Count calls of Triton's compiler, and of NVRTC through cuda.bindings. Other processes are not seen."""
    from triton import knobs

    listener = knobs.compilation.listener
    with watching() as nvidia:
        seen = CompilerCount(nvidia)

        def compiled(**event: Any) -> None:
            seen.triton += 1
            if listener is not None:
                listener(**event)

        knobs.compilation.listener = compiled
        try:
            yield seen
        finally:
            knobs.compilation.listener = listener
