"""The source files of a project that an entry point depends on, found in the source text without running it.

    imported_files("falsifiers.demo.sorting:Sorter", project.search)

Every import statement is followed, also inside functions. Imports by name at run time (`import_module(name)`) are not.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from harness.base import regular_file

__all__ = ["imported_files"]

_LONGEST = 1000
"""Characters of a module's name that are read, because a record can come from a stranger."""


def imported_files(entry_point: str, search: tuple[Path, ...]) -> frozenset[Path]:
    """The files below the folders `search` that an import of the entry point's module can read.

    A file that cannot be read or parsed imports nothing. An entry point without a module has no files.
    """
    pending = [entry_point.partition(":")[0][:_LONGEST]]
    seen: set[str] = set()
    files: set[Path] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        pending.append(name.rpartition(".")[0])  # importing a module also runs its packages
        file = _module_file(name, search)
        if file is not None:
            files.add(file)
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            pending += [one for one in _imported_names(file, package, _modified(file)) if one not in seen]
    return frozenset(files)


def _module_file(name: str, search: tuple[Path, ...]) -> Path | None:
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):  # a path, or the empty name above a top-level module
        return None
    for folder in search:
        place = folder.joinpath(*parts)
        for candidate in (place / "__init__.py", place.with_suffix(".py")):
            if os.path.isfile(candidate):  # unlike Path.is_file, it never raises
                return candidate
    return None


def _modified(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=4096)
def _imported_names(file: Path, package: str, modified: int) -> tuple[str, ...]:
    """The modules that a file imports, and `module.name` for each imported name, which can be a module too."""
    try:
        tree = ast.parse(regular_file.read(file), str(file))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(dict.fromkeys(_names(tree, package)))


def _names(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
