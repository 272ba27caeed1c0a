"""Determines where an exception was raised, and whether the machine is at fault."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from traceback import walk_tb

from harness.base.shortening import described
from harness.execution import frameworks
from harness.execution.sources import Sources
from harness.machine import triton_interpreter

__all__ = ["DISK_FULL", "MachineObstacle", "machine_fault", "placed", "raised_at", "set_place"]

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors for a full disk and an exceeded quota."""
_GIB = 2**30
_BROKEN_GPU = {
    "busy or unavailable": "the GPU was busy or unavailable",
    "uncorrectable ECC error": "the GPU had an uncorrectable memory error",
    "driver version is insufficient": "the GPU's driver is too old for this CUDA",
    "system not yet initialized": "the GPUs' fabric was not initialised",
}
"""The machine's fault, by a substring of the texts of CUDA errors 46, 214, 35 and 802, which no program causes."""

_INTERPRETER = os.path.join("triton", "runtime", "interpreter.py")


class MachineObstacle(Exception):
    """A fault of the machine that an isolated subject's process reports, as the cause of the subject's exception."""


def machine_fault(error: BaseException | None, memory_gib: float) -> str:
    """Return the machine's fault behind an exception; empty if the exception is the subject's fault.

    A full disk and a broken GPU are the machine's fault. So is an exception from Triton's interpreter, if the
    interpreter does not work on this machine. Exhausted GPU memory is the machine's fault if other processes left less
    than the profile's `memory_gib`; otherwise the subject uses too much.
    """
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        if isinstance(error, MachineObstacle):
            return str(error)
        text = described(error)
        if (isinstance(error, OSError) and error.errno in DISK_FULL) or "No space left on device" in text:
            return "the disk is full"
        for part, obstacle in _BROKEN_GPU.items():
            if "CUDA" in text and part in text:
                return obstacle
        if frameworks.is_gpu_out_of_memory(error):
            left = frameworks.gpu_bytes_left()
            if left is not None and left < memory_gib * _GIB:
                return f"others left {left / _GIB:.1f} of the {memory_gib:g} GiB of GPU memory that the profile needs"
        if _is_of_the_interpreter(error) and (why := triton_interpreter.misfit()):
            return why
        error = error.__cause__ or error.__context__
    return ""


def _is_of_the_interpreter(error: BaseException) -> bool:
    """Whether an exception passed through Triton's interpreter."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(_INTERPRETER):
            return True
        trace = trace.tb_next
    return False


_PLACE = "raised_at_in_the_subjects_process"


def placed(error: BaseException, sources: Sources) -> str:
    """Format an exception with its location: "falsifiers/softmax.py:12: ValueError: no row"."""
    return ": ".join(filter(None, (raised_at(error, sources), described(error))))


def raised_at(error: BaseException, sources: Sources) -> str:
    """Return FILE:LINE, relative to the project's root; empty if no code of the project is in the traceback."""
    place = getattr(error, _PLACE, "")
    for frame, line in walk_tb(None if place else error.__traceback__):
        if file := sources.path_of(Path(frame.f_code.co_filename)):
            place = f"{file}:{line}"
    return str(place)


def set_place(error: BaseException, place: str) -> None:
    """Record where an exception was raised in the process of an isolated subject."""
    setattr(error, _PLACE, place)
