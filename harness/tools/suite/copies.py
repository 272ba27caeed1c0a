"""Copies of a suite's folder in which its code under test is changed, and the tests that reach a line of it."""

from __future__ import annotations

import ast
import functools
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.authoring.faults import NotMeasured
from harness.base import regular_file
from harness.tools.suite.ledger import PASSED, Ledger
from harness.tools.suite.session import Suite

__all__ = ["copy_tree", "passing", "reaching", "suite_of_copy"]

_LEFT_OUT: Final = (".git", ".hg", ".nox", ".tox", ".venv", "__pycache__", "node_modules", ".*_cache")


def copy_tree(root: Path, copy: Path, workspace: Path) -> None:
    """Copy a folder without what belongs to git, environments and caches."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        environments = {name for name in names if (Path(folder) / name / "pyvenv.cfg").exists()}
        own = {name for name in names if os.path.realpath(Path(folder, name)) == os.path.realpath(workspace)}
        return {*shutil.ignore_patterns(*_LEFT_OUT)(folder, names), *environments, *own}

    shutil.copytree(root, copy, symlinks=True, ignore=left_out)


def suite_of_copy(suite: Suite, copy: Path, modules: Sequence[str], workspace: Path) -> Suite:
    """Return the suite of a copy, whose tests import these modules from there.

    Raises:
        NotMeasured: a module is a link to somewhere else, which must not be changed.
    """
    for module in modules:
        if not Path(os.path.realpath(copy / module)).is_relative_to(os.path.realpath(copy)):
            raise NotMeasured(f"{module} is a link out of {suite.root}; only a copy is mutated")
    return suite.copied(copy, _import_roots(suite.root, modules), workspace)


def _import_roots(root: Path, modules: Iterable[str]) -> list[Path]:
    """Return the folders from which modules are imported: those that hold no `__init__.py`."""
    folders = dict.fromkeys((root / module).parent for module in modules)
    return list(
        dict.fromkeys(
            next(
                parent
                for parent in (folder, *folder.parents)
                if parent == root or not (parent / "__init__.py").exists()
            )
            for folder in folders
        )
    )


def passing(ledger: Ledger) -> list[str]:
    """Return the tests that passed.

    Raises:
        NotMeasured: another one failed.
    """
    broken = [*ledger.broken, *(cell.identifier for _, _, cell in ledger.cells("failed"))]
    if broken:
        raise NotMeasured(f"in a copy of the folder, the suite fails without a mutant: {broken[0]}")
    return [cell.identifier for _, _, cell in ledger.cells(PASSED)]


def reaching(tree: Path, module: str, line: int, lines: Mapping[str, frozenset[str]], tests: list[str]) -> list[str]:
    """Return the tests that reach the statement at a line of a module: all if it runs outside of tests.

    Args:
        tree: the copy, with the module as it was traced.
        lines: those of each test, as `Ledger.lines` has them.
    """
    places = {f"{module}:{number}" for number in _statement(_parsed(tree / module), line)}
    reaching_tests = [test for test in tests if not places.isdisjoint(lines.get(test, ()))]
    return reaching_tests if places.isdisjoint(lines.get("", ())) else tests


@functools.lru_cache(maxsize=64)
def _parsed(file: Path) -> ast.Module:
    return ast.parse(regular_file.read(file))


def _statement(tree: ast.Module, line: int) -> range:
    """Return the lines of the innermost statement at a line; of a block, those until its body begins."""
    lines = range(line, line + 1)
    size = float("inf")
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            begin = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
            last = node.end_lineno or begin
            if begin <= line <= last and last - begin < size:
                size = last - begin
                inner = [
                    statement.lineno
                    for statement in ast.walk(node)
                    if isinstance(statement, ast.stmt) and statement is not node
                ]
                lines = range(begin, min(inner, default=last) + 1)
    return lines
