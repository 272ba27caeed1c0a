"""Which of the lines that ran decide what a claim measures, rather than only what importing the modules did.

Importing a module runs its constants, class bodies and default values, also those that the claim never uses. Such a
line counts if a function that ran uses the name that it assigns, directly or through other such lines.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

__all__ = ["used_lines"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class _Assigned:
    """A statement outside of functions that gives a value to names."""

    file: str
    lines: frozenset[int]
    names: frozenset[str]
    uses: frozenset[str]


def used_lines(files: Mapping[str, tuple[bytes, Collection[int]]]) -> dict[str, frozenset[int]]:
    """The lines to plant, by file.

    Args:
        files: the content of each file, and its lines that ran. A file that is not Python has no lines.
    """
    used: set[str] = set()
    lines: dict[str, set[int]] = {}
    assigned: list[_Assigned] = []
    for file, (content, ran) in files.items():
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError, RecursionError):
            continue
        lines[file] = set()
        for function in _functions(tree):
            body = {line for statement in function.body for line in _range(statement)} & set(ran)
            if body:
                header = set(range(function.lineno, function.body[0].lineno)) & set(ran)
                lines[file] |= body | header
                used |= {name for node in ast.walk(function) for name in _names(node, body | header)}
        assigned += _assignments(tree, file, ran)
    while more := [one for one in assigned if not one.names.isdisjoint(used)]:
        assigned = [one for one in assigned if one.names.isdisjoint(used)]
        for one in more:
            lines[one.file] |= one.lines
            used |= one.uses
    return {file: frozenset(found) for file, found in lines.items() if found}


def _functions(tree: ast.AST) -> Iterator[_Function]:
    """Every function; nested ones too, whose bodies may not have run."""
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            yield node


def _assignments(tree: ast.AST, file: str, ran: Collection[int]) -> Iterator[_Assigned]:
    """The statements outside of functions that ran."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {name for target in targets for part in ast.walk(target) for name in _names(part)}
            uses = {name for part in ast.walk(node) for name in _names(part)}
            yield _Assigned(file, _range(node) & set(ran), frozenset(names), frozenset(uses))
        elif not isinstance(node, _Function):
            yield from _assignments(node, file, ran)


def _names(node: ast.AST, lines: Iterable[int] | None = None) -> Iterator[str]:
    """The name, or the attribute, that a node is."""
    if isinstance(node, ast.Name) and (lines is None or node.lineno in lines):
        yield node.id
    elif isinstance(node, ast.Attribute) and (lines is None or node.lineno in lines):
        yield node.attr


def _range(node: ast.stmt) -> frozenset[int]:
    return frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))
