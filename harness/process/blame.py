"""Whether the machine, not the subject, is to blame for what the subject raised."""

from __future__ import annotations

import errno

from harness.process import frameworks

__all__ = ["machine_fault"]

_DISK = (errno.ENOSPC, errno.EDQUOT)
_GIB = 2**30


def machine_fault(error: BaseException | None, memory_gib: float) -> str:
    """What the machine ran out of; empty where the exception is the subject's own.

    A full disk is the machine's. So is exhausted GPU memory, where others had left this process less than the
    `memory_gib` that the profile requires; where it had as much, the subject wanted too much.
    """
    while error is not None:
        if (isinstance(error, OSError) and error.errno in _DISK) or "No space left on device" in str(error):
            return "the disk is full"
        if frameworks.is_gpu_out_of_memory(error):
            left = frameworks.gpu_bytes_left()
            if left is not None and left < memory_gib * _GIB:
                return f"others left {left / _GIB:.1f} of the {memory_gib:g} GiB of GPU memory that the profile needs"
        error = error.__cause__ or error.__context__
    return ""
