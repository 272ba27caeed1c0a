"""Make torch record autograd graphs of fake `cuda` tensors in a process that touches no GPU."""

from __future__ import annotations

import ctypes
import functools
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
from harness.report.terminal.progress_line import step_line
from harness.tools.probe.errors import ProbeError

__all__ = ["library", "present_device"]

_SOURCE = Path(__file__).with_name("present_device.cpp")
_COMPILE_SECONDS = 600.0


@contextmanager
def present_device() -> Iterator[None]:
    """Register a CUDA device for the autograd engine that has one stream and does nothing.

    The engine runs backward in the thread of this device, as with a GPU. Threads number the nodes of graphs separately,
    and the numbers decide which node runs first if a graph is differentiated again.

    Only this process is changed, and only until the end of the block. Do not run work on a GPU meanwhile.
    """
    loaded = library()
    was_initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    loaded.pretend()
    try:
        yield
    finally:
        loaded.relent()
        if not was_initialized:
            loaded.probe_forget()


@functools.cache
def library() -> ctypes.CDLL:
    """The library of present_device.cpp. Loading it registers the operators of `torch.ops.harness_probe`."""
    loaded = ctypes.CDLL(str(_compiled()))
    for name in ("begin", "allocated", "live", "peak", "count", "lives", "range"):
        getattr(loaded, f"probe_{name}").restype = ctypes.c_int64
    loaded.probe_events.restype = ctypes.POINTER(ctypes.c_int64)
    for name in ("allocated", "freed"):
        getattr(loaded, f"probe_{name}").argtypes = [ctypes.c_int64]
    loaded.probe_lives.argtypes = [ctypes.POINTER(ctypes.c_int64)]
    return loaded


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
    command += ["-o", str(unfinished), f"-L{folder / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch_python"]
    try:
        with step_line(f"compiling {_SOURCE.name}, once for this torch"):
            done = completed(command, _COMPILE_SECONDS)
    except Stopped as error:
        raise ProbeError(f"{compiler} {error}") from error
    if done.returncode:
        raise ProbeError(
            f"{compiler} cannot compile {_SOURCE.name} for torch {torch.__version__}: {done.stderr[-400:]}"
        )
    unfinished.rename(library)
    return library
