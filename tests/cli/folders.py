"""What is in a folder, for tests that say what a command may and may not write."""

from __future__ import annotations

from pathlib import Path


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file's bytes, and None for a folder, by path; what Python and the tools cache aside."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if not any(part == "__pycache__" or part.endswith("_cache") for part in path.relative_to(folder).parts)
    }
