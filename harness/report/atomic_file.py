"""Writing a report into a file, so that whoever reads it finds all of it or the one before."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_file"]


def write_file(path: Path, text: str) -> None:
    """Replace a file at once, making the folders above it; what is no file (a pipe, /dev/stdout) is written to.

    Raises:
        OSError: it cannot be written; the file is then what it was.
    """
    content = text.encode("utf-8", errors="backslashreplace")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
