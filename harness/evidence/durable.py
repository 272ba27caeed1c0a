"""Writing so that what was written is still there, whole, after the power goes."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_folder", "sync_tree", "write_new"]


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet, making the folders above it. It is on the disk only after `sync_tree`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(content)


def sync_tree(folder: Path) -> None:
    """Bring every file and folder below, and the folder itself, to the disk.

    All files are written before the first is synced: one journal commit then serves most of them. An error of writing
    back that the kernel met before this is reported here, once for each file, which is why none is left out.
    """
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(Path(parent, name), os.O_RDONLY)
        sync_folder(Path(parent))


def sync_folder(folder: Path) -> None:
    """Bring a folder's own entries to the disk: which names it has."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
