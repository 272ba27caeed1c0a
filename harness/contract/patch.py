"""A patch: a defect of a mutant, or one that `harness plant` plants, as a change of a few lines of Python source.

Patch("falsifiers.mine.reference", "Trainer.step", "loss / accumulation", "loss").applied(source)

The text `before` must occur once in the class or function `within`. Further lines of a text are indented relative to
its first line, so a patch does not depend on the nesting of the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from harness.base.json_dataclass import JsonDataclass

__all__ = ["Patch", "PatchError", "patched"]

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class PatchError(ValueError):
    """A patch does not apply to its source. The message states the reason."""


@final
@dataclass(frozen=True)
class Patch(JsonDataclass):
    """One replacement in one module."""

    module: str
    within: str
    """The qualified name of a class or function; empty for the whole module."""
    before: str
    after: str

    def applied(self, source: str) -> str:
        """Return the patched source.

        Raises:
            PatchError: the text does not occur exactly once, or the result is not valid Python.
        """
        start, end = self._span(source)
        occurrences = list(_occurrences(source, self.before, start, end))
        if len(occurrences) != 1:
            place = f"{self.module}:{self.within}".rstrip(":")
            raise PatchError(f"{self.before!r} is {len(occurrences)} times in {place}, not once")
        ((at, length, indentation),) = occurrences
        changed = source[:at] + _indented(self.after, indentation) + source[at + length :]
        try:
            same = _same(_parsed(source), ast.parse(changed), source.count("\n", 0, at) + 1)
        except (SyntaxError, ValueError) as error:
            raise PatchError(f"{self.module} is not Python with the patch: {error}") from error
        if same:
            raise PatchError(f"{self.after!r} changes nothing in {self.module}")
        return changed

    def _span(self, source: str) -> tuple[int, int]:
        """Return start and end of the class or function, with its decorators, as characters."""
        if not self.within:
            return 0, len(source)
        try:
            nodes: list[ast.AST] = [_parsed(source)]
        except (SyntaxError, ValueError) as error:
            raise PatchError(f"{self.module} is not Python: {error}") from error
        for name in self.within.split("."):
            nodes = [definition for node in nodes for definition in _defined(node) if definition.name == name]
        if len(nodes) != 1:
            raise PatchError(f"{self.module} defines {self.within} {len(nodes)} times, not once")
        (node,) = nodes
        assert isinstance(node, _Definition)
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        lines = [len(line) + 1 for line in source.split("\n")]
        return sum(lines[: first - 1]), sum(lines[: node.end_lineno])


def patched(source: str, patches: Iterable[Patch]) -> str:
    """Apply patches in order.

    Raises:
        PatchError: a patch does not apply.
    """
    for patch in patches:
        source = patch.applied(source)
    return source


@lru_cache(maxsize=8)
def _parsed(source: str) -> ast.Module:
    """The tree of a source. Many patches change the same one."""
    return ast.parse(source)


def _same(old: Any, new: Any, line: int) -> bool:
    """Whether two trees are equal. Their texts are equal above a line, so no statement that ends there is compared."""
    if type(old) is not type(new):
        return False
    if isinstance(old, list):
        return len(old) == len(new) and all(_same(*pair, line) for pair in zip(old, new, strict=True))
    if not isinstance(old, ast.AST):
        return bool(old == new)
    if isinstance(old, ast.stmt) and max(old.end_lineno or line, new.end_lineno or line) < line:
        return True
    return all(_same(getattr(old, name, None), getattr(new, name, None), line) for name in old._fields)


def _defined(node: ast.AST) -> Iterator[_Definition]:
    """Yield the classes and functions directly in a node, also inside its `if` and `with` blocks."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition):
            yield child
        elif not isinstance(child, ast.expr):
            yield from _defined(child)


def _occurrences(source: str, text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Yield start and length of each occurrence of a text, and the indentation of its first line."""
    first = text.partition("\n")[0]
    at = source.find(first, start, end)
    while at >= 0:
        line = source[source.rfind("\n", 0, at) + 1 : at + 1]
        indentation = line[: len(line) - len(line.lstrip())] if line.strip() else line
        there = _indented(text, indentation)
        if source.startswith(there, at) and at + len(there) <= end:
            yield at, len(there), indentation
        at = source.find(first, at + 1, end)


def _indented(text: str, indentation: str) -> str:
    first, *others = text.split("\n")
    return "\n".join([first, *(f"{indentation}{line}" if line else line for line in others)])
