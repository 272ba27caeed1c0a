"""The contents of a folder, for tests of what a command may write."""

from __future__ import annotations

from pathlib import Path


def contents(folder: Path) -> dict[str, bytes | None]:
    """The bytes of every file, None for a folder, by path; without caches of Python and the tools."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if not any(part == "__pycache__" or part.endswith("_cache") for part in path.relative_to(folder).parts)
    }
