"""Runs the text of the kernels on the CPU, built by the machine's C++ compiler: slow, but without a GPU.

This tests the arithmetic, indices, launches and the training step in CI. It does not test a GPU's compilers, memory
model or speed. kernels/host.h implements blocks and barriers.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from falsifiers.blackwell.reference.kernels.nvrtc import Image
from falsifiers.blackwell.reference.kernels.signature import signature
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.subjects.prewarm_keys import Launch

_HEADER: Final = Path(__file__).parent / "kernels" / "host.h"
_LAUNCH: Final = """
static void run(void** values) { host::call(KERNEL, values); }

extern "C" int launch_kernel(const unsigned* grid, unsigned block, void** values) {
    host::body = run;
    host::arguments = values;
    return host::launch(grid, block);
}
"""
_FAULTS: Final = {1: "not all threads of a block reached a barrier", 2: "out of memory"}


class NoHostCompiler(RuntimeError):
    """The machine has no C++ compiler, or its compiler cannot build the kernels."""


class HostDevice:
    """A CPU that runs kernels from their text. It ignores images."""

    sm = None

    def __init__(self, folder: Path) -> None:
        """`folder` keeps built libraries by digest of text, constants, header and machine; it may be shared."""
        self.folder = folder

    def load(self, spec: KernelSpec, image: Image) -> Launch:
        """Build the kernel's text for this CPU; raises NoHostCompiler if that fails."""
        del image
        run: Any = ctypes.CDLL(str(self._built(spec))).launch_kernel
        run.restype = ctypes.c_int
        types = signature(spec)

        def launch(grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
            values = [kind(_value(argument)) for kind, argument in zip(types, arguments, strict=True)]
            addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            status = run((ctypes.c_uint * 3)(*grid), ctypes.c_uint(threads), addresses)
            if status:
                raise RuntimeError(f"{spec.key}: {_FAULTS[status]}")

        return launch

    def _built(self, spec: KernelSpec) -> Path:
        text = f'#include "{_HEADER}"\n{spec.text}\n{_LAUNCH}'
        macros = [f"-D{name}={value}" for name, value in spec.macros.items()]
        content = "\0".join([platform.machine(), _HEADER.read_text(encoding="utf-8"), text, *macros])
        library = self.folder / f"{hashlib.sha256(content.encode()).hexdigest()[:24]}.so"
        if not library.exists():
            self._build(library, text, macros)
        return library

    def _build(self, library: Path, text: str, macros: list[str]) -> None:
        compiler = shutil.which("g++") or shutil.which("clang++")
        if compiler is None:
            raise NoHostCompiler("no C++ compiler; install g++ or clang++ to run kernels on the CPU")
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = library.with_suffix(f".{os.getpid()}")
        # -ffp-contract=off: some CPUs would fuse a * b + c. Without it, equal text gives equal bits on all CPUs.
        # -U_FORTIFY_SOURCE: with it, glibc refuses jumps between the stacks of a block's threads.
        options = ["-std=gnu++17", "-O2", "-w", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-shared", "-fPIC"]
        command = [compiler, *options, *macros]
        done = subprocess.run(
            [*command, "-x", "c++", "-", "-o", str(beside), "-lm"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NoHostCompiler(f"{compiler} cannot build {text.splitlines()[0]}: {done.stderr[-2000:]}")
        beside.replace(library)


def _value(argument: object) -> Any:
    return argument.data_ptr() if isinstance(argument, Tensor) else argument
