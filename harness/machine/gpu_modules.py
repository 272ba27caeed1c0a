"""Checks that installed Python modules can work on a GPU.

Without these checks a module raises inside the subject, and a faulty installation refutes the claim.
"""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.machine.host import Host

__all__ = ["shortfalls"]


def shortfalls(modules: Iterable[str], host: Host) -> list[str]:
    """Return why installed modules cannot work on the GPUs of this host. No module is imported."""
    checks = {"torch": _torch, "triton": _triton}
    return [reason for name in modules if name in checks for reason in checks[name](host)]


def _torch(host: Host) -> list[str]:
    """A torch that was built for the CPU, or for a newer driver, finds no GPU.

    A driver runs code that was built for any minor version of its CUDA ("Minor Version Compatibility" in NVIDIA's CUDA
    Compatibility guide).
    """
    from harness.machine import toolchain

    torch = toolchain.torch()
    if torch.reason is not None:
        return []
    built, driver = torch.details["cuda"], host.cuda_driver_version
    if built is None:
        return [f"needs a torch that was built for CUDA; {torch.version} was not (pytorch.org has both)"]
    if driver is not None and _major(built) > _major(driver):
        return [f"needs a driver for CUDA {built}, for which torch {torch.version} was built; this one is for {driver}"]
    return []


def _major(version: str) -> int:
    """Return 13 for "13.0", and 0 for a text that is not a version."""
    return int(found[0]) if (found := re.match(r"\d+", version)) else 0


def _triton(host: Host) -> list[str]:
    """Triton compiles its launcher with a C compiler and Python's headers, as its runtime/build.py does.

    Triton reads the variable CC too, but the environment of a trial does not contain it.
    """
    if not (shutil.which("gcc") or shutil.which("clang")):
        return ["needs a C compiler, with which Triton builds its launcher (Debian: apt install gcc)"]
    scheme = sysconfig.get_default_scheme()
    folder = sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"]
    header = Path(folder, "Python.h")
    if header.is_file():
        return []
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
    return [f"needs Python's headers, with which Triton builds its launcher; there is no {header} (Debian: {package})"]
