"""Where an exception was raised, and whether the machine is at fault."""

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
"""Errors of a disk that is full, and of a quota that is used up."""
_GIB = 2**30
_BROKEN_GPU = {
    "busy or unavailable": "the GPU was busy or unavailable",
    "uncorrectable ECC error": "the GPU had an uncorrectable memory error",
    "driver version is insufficient": "the GPU's driver is too old for this CUDA",
    "system not yet initialized": "the GPUs' fabric was not initialised",
}
"""What the machine lacks, by a part of the text of CUDA errors 46, 214, 35 and 802, which no program causes."""

_INTERPRETER = os.path.join("triton", "runtime", "interpreter.py")


class MachineObstacle(Exception):
    """A lack of the machine that the subject's process found. It is a cause of the subject's exception."""


def machine_fault(error: BaseException | None, memory_gib: float) -> str:
    """Return what the machine lacks; empty if the exception is the subject's fault.

    A full disk and a broken GPU are the machine's fault. So is an exception that passed through Triton's interpreter,
    if this does not work on its own. Exhausted GPU memory is the machine's fault if other processes left less than the
    profile's `memory_gib`. Otherwise the subject uses too much.
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
    """Return an exception in words, after its place: "falsifiers/softmax.py:12: ValueError: no row"."""
    return ": ".join(filter(None, (raised_at(error, sources), described(error))))


def raised_at(error: BaseException, sources: Sources) -> str:
    """Return the file, from the project's root, and the line. Empty if no code of the project is in the traceback."""
    place = getattr(error, _PLACE, "")
    for frame, line in walk_tb(None if place else error.__traceback__):
        if file := sources.path_of(Path(frame.f_code.co_filename)):
            place = f"{file}:{line}"
    return str(place)


def set_place(error: BaseException, place: str) -> None:
    """Record where an exception was raised in the process of an isolated subject."""
    setattr(error, _PLACE, place)
