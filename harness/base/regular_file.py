"""Reads untrusted files: regular files only, and of bounded size if read as a whole.

A pipe could block its reader forever, and a device such as /dev/zero has no end.
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
"""Bytes per read of a file that is read in pieces."""

LARGEST = 16 << 20
"""Maximum bytes of a contract, a source file or another document."""


def read(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a file. Links are followed.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is larger than `largest` bytes.
    """
    with opened(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"has more than {largest} bytes", str(path))
    return content


def opened(path: Path) -> BufferedReader:
    """Open a file for reading. Links are followed.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
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
