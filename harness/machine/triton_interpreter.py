"""Whether Triton's interpreter works on its own, in which kernels run on a CPU.

Some versions of Triton and NumPy do not fit: each kernel of the subject then raises, and the subject is not to blame.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Final

from harness.machine import timebox

__all__ = ["misfit"]

_SECONDS: Final = 120.0
_MODULE: Final = "harness.machine.interpreted_kernel"


@cache
def misfit() -> str:
    """Return why the interpreter does not run a kernel of the harness; empty if it does.

    Another process runs the kernel, with the modules that this one would import. That takes some seconds.
    """
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    answer = timebox.output([sys.executable, "-m", _MODULE], _SECONDS, environment=environment)
    if answer.value is not None:
        return ""
    with_numpy = " and ".join(f"{name} {_version(name)}" for name in ("triton", "numpy"))
    return f"Triton's interpreter does not work here on its own ({with_numpy}): {answer.reason}"


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version(name)
    except PackageNotFoundError:
        return "of an unknown version"
