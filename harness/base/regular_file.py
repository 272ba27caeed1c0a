"""Reading a file that others wrote or named: regular files only. Read as a whole, it has a bounded size.

A pipe would block its reader for ever, and a device such as /dev/zero has no end.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

__all__ = ["CHUNK", "LARGEST", "opened", "read", "sha256"]

CHUNK = 1 << 20
"""Bytes per read, for a file that is not kept as a whole. The number does not change the result."""

LARGEST = 16 << 20
"""Bytes of a contract, a source file or another document."""


def read(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a file. Links to it are followed.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger. Nothing is read then.
    """
    with opened(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"has more than {largest} bytes", str(path))
    return content


def opened(path: Path) -> BufferedReader:
    """Open a file for reading. Links to it are followed.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    return open(path, "rb", opener=_regular)


def sha256(path: Path) -> str:
    """Return the digest of a file of any size. Raises OSError as `opened` does."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return descriptor
