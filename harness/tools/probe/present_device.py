"""Make torch record autograd graphs of fake `cuda` tensors in a process that touches no GPU."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from harness.machine.cache_folder import made_cache_folder
from harness.machine.limited_process import Stopped, completed
from harness.tools.probe.errors import ProbeError

__all__ = ["present_device"]

_SOURCE = Path(__file__).with_name("present_device.cpp")
_COMPILE_SECONDS = 600.0


@contextmanager
def present_device() -> Iterator[None]:
    """Let the autograd engine meet a CUDA device that has one stream and does nothing.

    Only this process is changed, and only until the end of the block. Do not run work on a GPU meanwhile.
    """
    library = ctypes.CDLL(str(_compiled()))
    library.pretend()
    try:
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        library.relent()


def _compiled() -> Path:
    """The library, compiled once for each torch into the cache folder."""
    digest = hashlib.sha256(_SOURCE.read_bytes())
    digest.update(f"{torch.__version__} {torch.__file__} {sysconfig.get_platform()}".encode())
    library = made_cache_folder() / "probe" / f"present_device-{digest.hexdigest()[:16]}.so"
    if library.exists():
        return library
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise ProbeError("the probe needs a C++ compiler; install g++, or name one in the variable CXX")
    library.parent.mkdir(parents=True, exist_ok=True)
    unfinished = library.with_suffix(f".{os.getpid()}")
    folder = Path(torch.__file__).parent
    command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{folder / 'include'}", str(_SOURCE)]
    command += ["-o", str(unfinished), f"-L{folder / 'lib'}", "-lc10", "-ltorch_cpu"]
    try:
        done = completed(command, _COMPILE_SECONDS)
    except Stopped as error:
        raise ProbeError(f"{compiler} {error}") from error
    if done.returncode:
        raise ProbeError(
            f"{compiler} cannot compile {_SOURCE.name} for torch {torch.__version__}: {done.stderr[-400:]}"
        )
    unfinished.rename(library)
    return library
