"""The syntax tree of a source file with the position of each node, and edits of single positions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

__all__ = ["Edit", "Operator", "Site", "Source", "called", "positional"]


@dataclass(frozen=True)
class Edit:
    """Bytes of a source file and the text that replaces them."""

    start: int
    end: int
    text: str


class Source:
    """A source file: its bytes, its tree, and the position of each node.

    Raises:
        SyntaxError, ValueError: the bytes are not Python.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.tree = ast.parse(content)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def _lines(self) -> list[int]:
        """The offset in bytes at which each line begins."""
        return [0, *accumulate(len(line) for line in self.content.splitlines(keepends=True))]

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """The offsets in bytes of a node's beginning and end."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def code(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.content[start:end].decode()

    def within(self, node: ast.AST) -> str:
        """The qualified name of the function or class that contains a node; empty at the module's level."""
        names: list[str] = []
        inner: ast.AST | None = node
        while inner is not None:
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.append(inner.name)
            inner = self.parents.get(inner)
        return ".".join(reversed(names))


@dataclass(frozen=True)
class Site:
    """A node that operators may change."""

    source: Source
    node: ast.AST

    @property
    def parent(self) -> ast.AST | None:
        """The parent node."""
        return self.source.parents.get(self.node)

    def code(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        return self.source.code(node)

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        """Replace a node by a text."""
        return Edit(*self.source.span(node), text)

    def between(self, left: ast.expr, right: ast.expr, pattern: str, text: str) -> Iterator[Edit]:
        """Replace the first match between two nodes by a text; yield nothing without a match."""
        start, end = self.source.span(left)[1], self.source.span(right)[0]
        old = self.source.content[start:end].decode()
        if (new := re.sub(pattern, text, old, count=1)) != old:
            yield Edit(start, end, new)

    def rename(self, call: ast.Attribute | ast.Name, name: str) -> Edit:
        """Replace the called name, or the last part of a dotted name."""
        end = self.source.span(call)[1]
        old = call.attr if isinstance(call, ast.Attribute) else call.id
        return Edit(end - len(old.encode()), end, name)


Operator = Callable[[Site], Iterator[Edit]]
"""Yields the edits of an operator at a node; none if the operator does not apply."""


def called(node: ast.AST) -> str:
    """The last part of the called name; empty if the callee is no name."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def positional(call: ast.Call) -> list[ast.expr]:
    """The positional arguments before the first starred one."""
    plain: list[ast.expr] = []
    for argument in call.args:
        if isinstance(argument, ast.Starred):
            break
        plain.append(argument)
    return plain
