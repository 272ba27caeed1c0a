"""Selects the executed lines that can affect a claim's measurements, without those that only ran on import.

Importing a module runs its constants, class bodies and default values, also those that the claim never uses. Such a
line counts if an executed function uses the name that it assigns, directly or through other such lines. A local
variable of the same name does not count as a use. The lines of a function that a compiler reads instead of Python, such
as one with @triton.jit, count if its name is used.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

__all__ = ["used_lines"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class _Assigned:
    """A statement outside functions that assigns names."""

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
        ran = _whole(tree, set(ran))
        for function in [node for node in ast.walk(tree) if isinstance(node, _Function)]:
            if _is_compiled(function):
                names = frozenset(_outer_names(function, _range(function)))
                header = set(range(function.decorator_list[0].lineno, function.body[0].lineno))
                own = frozenset() if ran.isdisjoint(header) else _range(function)
                assigned.append(_Assigned(file, own, frozenset({function.name}), names))
                continue
            body = {line for statement in function.body for line in _range(statement)} & ran
            if body:
                header = set(range(function.lineno, function.body[0].lineno)) & ran
                lines[file] |= body | header
                used |= _outer_names(function, body | header)
        assigned += _assignments(tree, file, ran)
    while more := [assignment for assignment in assigned if not assignment.names.isdisjoint(used)]:
        assigned = [assignment for assignment in assigned if assignment.names.isdisjoint(used)]
        for assignment in more:
            lines[assignment.file] |= assignment.lines
            used |= assignment.uses
    return {file: frozenset(found) for file, found in lines.items() if found}


def _whole(tree: ast.AST, ran: set[int]) -> set[int]:
    """The executed lines, with all lines of their statements: of a multi-line string, only the first line is traced."""
    for node in ast.walk(tree):
        holds = hasattr(node, "body") or isinstance(node, ast.Match)
        if isinstance(node, ast.stmt) and not holds and not ran.isdisjoint(lines := _range(node)):
            ran |= lines
    return ran


def _is_compiled(function: _Function) -> bool:
    """Whether a compiler reads the function's source, so that Python never executes its lines."""
    named = [decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in function.decorator_list]
    return any(name == "jit" for node in named for name in _names(node))


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


def _outer_names(function: _Function, lines: Collection[int]) -> set[str]:
    """The attributes on these lines of a function, and the names that are not local variables."""
    nodes = list(ast.walk(function))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own -= {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return {
        name for node in nodes if not (isinstance(node, ast.Name) and node.id in own) for name in _names(node, lines)
    }


def _names(node: ast.AST, lines: Iterable[int] | None = None) -> Iterator[str]:
    """The identifier of a name or attribute node."""
    if isinstance(node, ast.Name) and (lines is None or node.lineno in lines):
        yield node.id
    elif isinstance(node, ast.Attribute) and (lines is None or node.lineno in lines):
        yield node.attr


def _range(node: ast.stmt) -> frozenset[int]:
    return frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))
