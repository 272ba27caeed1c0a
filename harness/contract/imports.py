"""The source files and the libraries that an entry point depends on, found in the source text without running it.

    imported_files("falsifiers.demo.sorting:Sorter", project.search)
    imported_libraries(["falsifiers.demo.sorting:Sorter"], project.search)

Imports by name at run time (`import_module(name)`) are not followed.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from harness.base import regular_file

__all__ = ["imported_files", "imported_libraries"]

_LONGEST = 1000
"""Characters of a module's name that are read, because a record can come from a stranger."""


def imported_files(entry_point: str, search: tuple[Path, ...]) -> frozenset[Path]:
    """The files below the folders `search` that an import of the entry point's module can read, now or in a function.

    A file that cannot be read or parsed imports nothing. An entry point without a module has no files.
    """
    files, _ = _followed([entry_point], search, ast.walk)
    return files


def imported_libraries(entry_points: Iterable[str], search: tuple[Path, ...]) -> frozenset[str]:
    """The names from outside of the project and the standard library that an import of the modules imports at once.

    A name is that of a module, or of something in one: `from torch import nn` gives "torch" and "torch.nn". Imports in
    functions do not count.
    """
    _, names = _followed(entry_points, search, _run_by_an_import)
    return frozenset(name for name in names if _is_library(name.partition(".")[0], search))


def _followed(
    entry_points: Iterable[str], search: tuple[Path, ...], nodes: Callable[[ast.AST], Iterable[ast.AST]]
) -> tuple[frozenset[Path], frozenset[str]]:
    """The files that imports lead to, and the names of imported modules without a file."""
    pending = [entry_point.partition(":")[0][:_LONGEST] for entry_point in entry_points]
    seen: set[str] = set()
    files: set[Path] = set()
    others: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        pending.append(name.rpartition(".")[0])  # importing a module also runs its packages
        file = _module_file(name, search)
        if file is None:
            others.add(name)
        else:
            files.add(file)
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            pending += [one for one in _imported_names(file, package, _modified(file), nodes) if one not in seen]
    return frozenset(files), frozenset(others)


def _is_library(package: str, search: tuple[Path, ...]) -> bool:
    standard = not package or package in sys.stdlib_module_names
    return not standard and not any((folder / package).is_dir() or _module_file(package, search) for folder in search)


def _run_by_an_import(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported. Imports for a type checker do not."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.expr):
            continue
        yield node
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        pending += node.orelse if is_for_types and isinstance(node, ast.If) else ast.iter_child_nodes(node)


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
def _imported_names(
    file: Path, package: str, modified: int, nodes: Callable[[ast.AST], Iterable[ast.AST]]
) -> tuple[str, ...]:
    """The modules that a file imports, and `module.name` for each imported name, which can be a module too."""
    try:
        tree = ast.parse(regular_file.read(file), str(file))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(dict.fromkeys(_names(nodes(tree), package)))


def _names(nodes: Iterable[ast.AST], package: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
