"""Reading a whole file that others wrote: regular files only, of bounded size.

A pipe would block its reader for ever, and a device such as /dev/zero has no end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["LARGEST", "read"]

LARGEST = 16 << 20
"""Bytes of a contract, a source file or another document."""


def read(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a file. Links to it are followed.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger. Nothing is read then.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"has more than {largest} bytes", str(path))
    return content
