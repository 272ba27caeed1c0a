"""Compiles kernels with NVIDIA's run-time compiler on any machine, to machine code or to PTX."""

import ctypes
import importlib.metadata
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any

from falsifiers.blackwell.reference.kernels.spec import OPTIONS, KernelSpec


class CompilationFailed(RuntimeError):
    """NVRTC refused a kernel or a target; the text includes its log."""


class Form(Enum):
    """The form of an image."""

    CUBIN = "cubin"
    PTX = "ptx"


@dataclass(frozen=True)
class Image:
    """Input of the driver: an ELF file with machine code for one architecture, or PTX, text that ends with a 0 byte."""

    form: Form
    data: bytes


def compile_kernel(spec: KernelSpec, sm: int, form: Form = Form.CUBIN) -> Image:
    """Compile a kernel for compute capability `sm`, such as 90 or 121.

    Equal specs, targets and compilers give equal bytes. Every call compiles: NVRTC's own cache is off, because it could
    return an older result.

    Raises:
        CompilationFailed: with the compiler's log; also for an unknown target, such as sm_121 before CUDA 12.9.
    """
    nvrtc = _nvrtc()
    target = f"{'sm' if form is Form.CUBIN else 'compute'}_{sm}"
    options = [
        *OPTIONS,
        "--no-cache",
        f"--gpu-architecture={target}",
        *(f"-D{name}={text}" for name, text in spec.macros.items()),
    ]
    program = _call(nvrtc.nvrtcCreateProgram(spec.text.encode(), f"{spec.source}.cu".encode(), 0, None, None))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytearray(_call(nvrtc.nvrtcGetProgramLogSize(program)))
            nvrtc.nvrtcGetProgramLog(program, log)
            message = log.rstrip(b"\0").decode(errors="replace").strip()
            raise CompilationFailed(f"{spec.key} for {target}: NVRTC {compiler_version()}: {status.name}: {message}")
        size, get = (
            (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
            if form is Form.CUBIN
            else (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        )
        data = bytearray(_call(size(program)))
        _call(get(program, data))
        return Image(form, bytes(data))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def compiler_version() -> str:
    """The version of NVRTC, such as "13.0"; raises ImportError or RuntimeError without NVRTC."""
    major, minor = _call(_nvrtc().nvrtcVersion())
    return f"{major}.{minor}"


def supported_targets() -> tuple[int, ...]:
    """The compute capabilities of this NVRTC, such as (75, ..., 121)."""
    return tuple(_call(_nvrtc().nvrtcGetSupportedArchs()))


@cache
def _nvrtc() -> ModuleType:
    """The bindings of NVRTC, after loading the library of its wheel if there is one.

    The bindings search only the interpreter's own site-packages; the wheel may be elsewhere on the path.
    """
    from cuda.bindings import nvrtc

    try:
        files = importlib.metadata.files("nvidia-cuda-nvrtc") or []
    except importlib.metadata.PackageNotFoundError:
        files = []  # the CUDA toolkit's library may be on the loader's path
    for file in files:
        if file.name.startswith(("libnvrtc.so", "libnvrtc-builtins.so")):
            ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)
    return nvrtc


def _call(answer: tuple[Any, ...]) -> Any:
    """The values that a call of the bindings returned after its status."""
    status, *values = answer
    if status.value != 0:
        raise CompilationFailed(f"NVRTC: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)
