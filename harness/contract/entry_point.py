"""Entry points, `module.path:Name`: located in source text without running it, imported in a trial's process."""

from __future__ import annotations

import ast
import importlib
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.base import near, regular_file
from harness.contract.project_importer import import_other, module_file

__all__ = ["EntryPointError", "locate", "resolve", "resolve_own"]

_HARNESS = Path(__file__).parents[1]


class EntryPointError(ValueError):
    """An entry point names nothing under the project's root. The message states the reason."""

    def __init__(
        self, message: str, remedy: str = "write module.path:Name of something defined under the project's root"
    ) -> None:
        super().__init__(message)
        self.remedy = remedy


def locate(entry_point: str, search: tuple[Path, ...]) -> Path:
    """Return the file in the folders `search` that defines or re-exports an entry point. Nothing is imported.

    An entry point of the harness itself is found in the harness's own package.

    Raises:
        EntryPointError: the module does not exist, is outside these folders, or lacks the name.
    """
    module, _, name = entry_point.partition(":")
    for folder in (_HARNESS.parent,) if module.partition(".")[0] == _HARNESS.name else search:
        file = module_file(module, [folder])
        if file is not None:
            if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
                raise EntryPointError(f"{entry_point} leads outside {folder}")
            defined = _defined(file, file.stat().st_mtime_ns)
            if name not in defined:
                remedy = near.hint(name, sorted(defined), EntryPointError("").remedy)
                raise EntryPointError(f"{file} does not define {name}", remedy)
            return file
    raise EntryPointError(f"there is no module {module} under {', '.join(map(str, search))}")


def resolve(entry_point: str) -> Any:
    """Import an entry point that the user names, from the user's project if it has the module, else from the claim's.

    Call this in a trial's process only.

    Raises:
        ImportError: the module or one of its imports fails. The message begins with the module's name.
    """
    return _resolved(entry_point, import_other)


def resolve_own(entry_point: str) -> Any:
    """Like `resolve`, for an entry point that a contract names: import it from the claim's project."""
    return _resolved(entry_point, importlib.import_module)


def _resolved(entry_point: str, import_module: Callable[[str], ModuleType]) -> Any:
    module, _, name = entry_point.partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        error.msg = f"{module}: {error}"
        raise


@lru_cache(maxsize=512)
def _defined(path: Path, modified: int) -> frozenset[str]:
    """Return every name that a module defines, assigns or imports at its top level."""
    try:
        tree = ast.parse(regular_file.read(path), str(path))
    except (SyntaxError, ValueError) as error:
        raise EntryPointError(f"{path} is not valid Python: {error}", "correct the file") from error
    except (RecursionError, MemoryError) as error:  # both mean that Python's own parser cannot hold it
        raise EntryPointError(f"{path} is nested too deeply for Python", "write a flatter file") from error
    except OSError as error:
        raise EntryPointError(f"{path} cannot be read: {error.strerror}", "make it a readable file") from error
    names: set[str] = set()
    pending = list(ast.iter_child_nodes(tree))
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.If, ast.Try, ast.ExceptHandler, ast.With)):
            pending += ast.iter_child_nodes(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return frozenset(names)
