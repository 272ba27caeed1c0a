"""Writes new files from templates: all or none. Existing files are never overwritten.

The templates are files in harness/cli/templates/ with `$name` for values (`string.Template`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from string import Template

__all__ = ["render", "write_all"]


def render(template: str, **values: str) -> str:
    """Return a template with its values filled in. Raise KeyError if one is missing."""
    text = files("harness.cli").joinpath("templates", *template.split("/")).read_text(encoding="utf-8")
    return Template(text).substitute(values)


def write_all(contents: Mapping[Path, str], additions: Mapping[Path, str] | None = None) -> None:
    """Write files and their folders: all or none.

    Args:
        contents: the texts of new files. Line ends are kept.
        additions: texts to append to existing files.

    Raises:
        FileExistsError: some of the new files exist; nothing was written.
        OSError: one cannot be written; the others were removed again.
    """
    taken = [str(path) for path in contents if os.path.lexists(path)]
    if taken:
        raise FileExistsError(f"nothing is overwritten, and there is already {', '.join(taken)}")
    written: list[Path] = []
    grown: dict[Path, int] = {}
    try:
        for path, text in contents.items():
            for folder in reversed([parent for parent in path.parents if not parent.exists()]):
                folder.mkdir()
                written.append(folder)
            with path.open("x", encoding="utf-8", newline="") as file:
                written.append(path)
                file.write(text)
        for path, text in (additions or {}).items():
            with path.open("r+", encoding="utf-8", newline="") as file:
                grown[path] = file.seek(0, os.SEEK_END)
                file.write(text)
    except BaseException:
        for path, size in grown.items():
            with suppress(OSError):
                os.truncate(path, size)
        for path in reversed(written):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise
