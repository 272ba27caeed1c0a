"""Writes a file in one step: a reader sees the old file or the whole new one."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_file"]


def write_file(path: Path, text: str) -> None:
    """Replace a file in one step, and create its folders. A pipe or device is written to directly.

    Raises:
        OSError: the file cannot be written; the old file is unchanged.
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
