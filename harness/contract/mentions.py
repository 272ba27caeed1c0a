"""Finds where a project's files mention claims, so that claims without a contract can be reported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.base import regular_file
from harness.contract.project import Project
from harness.machine.cache_folder import NoCacheFolderError, cache_folder
from harness.machine.file_memory import FileMemory
from harness.machine.git import git

__all__ = ["mentions"]

_LARGEST = 1 << 20
"""Maximum bytes. A larger file is not written by hand."""
_GIT_SECONDS = 30.0


def mentions(project: Project) -> dict[str, list[str]]:
    """Return the ids of claims in the project's files, sorted, each with its locations as FILE:LINE.

    The search covers the files that git does not ignore, or all files without git, except the evidence and the copies
    of the harness's schemas.
    `[tool.harness.mentions]` of pyproject.toml sets the form of an id and the exclusions.
    """
    words = rb"(?<![A-Za-z0-9_-])(?:%b)(?![A-Za-z0-9_-])" % project.mentions.pattern.encode()
    pattern = re.compile(words, re.MULTILINE)
    memory = FileMemory("mentions", project.root, repr(words))
    files_by_id: dict[str, list[str]] = {}
    for name in sorted(_files(project)):
        if _is_excluded(name, project):
            continue
        for identifier, number in memory.of(f"{project.root}/{name}", lambda file: _ids(file, pattern)):
            files_by_id.setdefault(identifier, []).append(f"{name}:{number}")
    memory.save()
    return {
        identifier: files_by_id[identifier]
        for identifier in sorted(files_by_id)
        if not _is_excluded(identifier, project)
    }


def _files(project: Project) -> Iterator[str]:
    """Yield the names of the files to search, relative to the project's root."""
    left_out = {project.evidence, project.schemas, *_cache(project)}
    excluded = (f":(exclude){folder.relative_to(project.root).as_posix()}" for folder in sorted(left_out))
    listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".")
    listed = git(project.root, *listing, *excluded, seconds=_GIT_SECONDS).value
    if listed is not None:
        # A file whose name is not plain text is not written by hand.
        yield from (name for name in set(os.fsdecode(listed).split("\0")) if name and name.isprintable())
        return
    for folder, folders, names in os.walk(project.root):
        here = Path(folder)
        folders[:] = [folder for folder in folders if not folder.startswith(".") and here / folder not in left_out]
        yield from ((here / name).relative_to(project.root).as_posix() for name in names)


def _cache(project: Project) -> list[Path]:
    """Return the cache folder if it is in the project. It repeats the mentions of other files."""
    with suppress(NoCacheFolderError):
        folder = cache_folder().absolute()
        return [folder] if folder.is_relative_to(project.root) and folder != project.root else []
    return []


def _is_excluded(name: str, project: Project) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}/*") for pattern in project.mentions.exclude)


def _ids(file: str, pattern: re.Pattern[bytes]) -> list[list[Any]]:
    """Return the ids that a file mentions, each with its line number."""
    text = _text(Path(file))
    return [
        [match[0].decode("utf-8", "replace"), text.count(b"\n", 0, match.start()) + 1]
        for match in pattern.finditer(text)
    ]


def _text(path: Path) -> bytes:
    """Return the content of a text file; empty for a binary, too large or unreadable one."""
    try:
        content = b"" if path.is_symlink() else regular_file.read(path, _LARGEST)
    except OSError:
        return b""
    return b"" if b"\0" in content[:8192] else content
