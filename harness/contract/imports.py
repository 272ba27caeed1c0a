"""Finds the source files and libraries that an entry point depends on, in the source text, without running it.

    imported_files("falsifiers.demo.sorting:Sorter", project.search)
    imported_libraries(["falsifiers.demo.sorting:Sorter"], project.search)

Imports by name at run time (`import_module(name)`) are not followed.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

from harness.base import regular_file
from harness.contract.project_importer import module_file
from harness.machine.file_memory import FileMemory

__all__ = ["imported_files", "imported_libraries"]

_Statement = tuple[int | None, str | None, list[str]]
"""An import: the dots before the module of `from … import`, None for `import`; that module; and the names."""
_LONGEST = 1000
"""Maximum characters of a module's name, because a record can come from an untrusted source."""


def imported_files(entry_point: str, search: tuple[Path, ...], memory: FileMemory | None = None) -> frozenset[Path]:
    """Return the files below `search` that the entry point's module imports, directly or not, also inside functions.

    A file that cannot be read or parsed imports nothing. An entry point without a module has no files.

    Args:
        memory: a cache of the imports of files; None to parse each file.
    """
    parsed = partial(_statements, nodes=ast.walk)
    files, _ = _followed([entry_point], search, parsed if memory is None else lambda file: memory.of(file, parsed))
    return files


def imported_libraries(entry_points: Iterable[str], search: tuple[Path, ...]) -> frozenset[str]:
    """Return the names from third-party libraries that the modules import at import time.

    A name is that of a module, or of something in one: `from torch import nn` gives "torch" and "torch.nn". Imports in
    functions do not count.
    """
    _, names = _followed(entry_points, search, partial(_statements, nodes=_run_by_an_import))
    return frozenset(name for name in names if _is_library(name.partition(".")[0], search))


def _followed(
    entry_points: Iterable[str], search: tuple[Path, ...], statements: Callable[[str], Sequence[_Statement]]
) -> tuple[frozenset[Path], frozenset[str]]:
    """Return all imported files, and the names of imported modules without a file."""
    pending = [entry_point.partition(":")[0][:_LONGEST] for entry_point in entry_points]
    visited: set[str] = set()
    files: set[Path] = set()
    others: set[str] = set()
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        pending.append(name.rpartition(".")[0])  # importing a module also runs its packages
        file = module_file(name, search)
        if file is None:
            others.add(name)
        else:
            files.add(file)
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            pending += [name for name in _names(statements(str(file)), package) if name not in visited]
    return frozenset(files), frozenset(others)


def _is_library(package: str, search: tuple[Path, ...]) -> bool:
    standard = not package or package in sys.stdlib_module_names
    return not standard and not any((folder / package).is_dir() or module_file(package, search) for folder in search)


def _run_by_an_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run when the module is imported, without `if TYPE_CHECKING` blocks."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.expr):
            continue
        yield node
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        pending += node.orelse if is_for_types and isinstance(node, ast.If) else ast.iter_child_nodes(node)


def _statements(file: str, nodes: Callable[[ast.AST], Iterable[ast.AST]]) -> Sequence[_Statement]:
    try:
        return _parsed(file, os.stat(file).st_mtime_ns, nodes)
    except OSError:
        return ()


@lru_cache(maxsize=4096)
def _parsed(file: str, modified: int, nodes: Callable[[ast.AST], Iterable[ast.AST]]) -> tuple[_Statement, ...]:
    """The import statements of a file."""
    try:
        tree = ast.parse(regular_file.read(Path(file)), file)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(
        (getattr(node, "level", None), getattr(node, "module", None), [alias.name for alias in node.names])
        for node in nodes(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def _names(statements: Iterable[_Statement], package: str) -> Iterator[str]:
    """Yield the modules that a file imports, and `module.name` for each imported name, which may be a module."""
    for level, of, names in statements:
        if level is None:
            yield from names
        else:
            parents = package.split(".")
            base = parents[: len(parents) - level + 1] if level else []
            module = ".".join([*base, *([of] if of else [])])
            yield module
            yield from (f"{module}.{name}" for name in names)
