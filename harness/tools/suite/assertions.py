"""Finds the assertions of a module's syntax tree, and marks each so that it reports when it has held.

    tree = ast.parse(source)
    mark(tree, "tests/test_sum.py")

An assertion is a place that pytest can fail at:

- an `assert` statement, unless its condition is constant (see `is_constant`);
- a statement that calls something named `assert…` or `expect…`, such as `torch.testing.assert_close(a, b)`;
- a `with` block on something named `raises`, `warns`, `deprecated_call` or `assert…`.

The mark is a call behind the statement. It runs only if the statement raised nothing, so an assertion that failed is
not counted, also if something catches its error. A mark names its place as `file:line:column`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["CALLED", "HELD", "is_constant", "mark"]

HELD: Final = "@harness_held"
"""The name in `builtins` of what a mark calls with its place. No source text can spell it."""
CALLED: Final = "@harness_called"
"""The same for a call by name. It also gets the function, because a function of the suite itself may assert nothing."""

_BLOCKS: Final = frozenset({"raises", "warns", "deprecated_call"})


def mark(tree: ast.Module, file: str) -> None:
    """Mark the assertions of a module in place."""
    _Marking(file).visit(tree)


def is_constant(condition: ast.expr) -> bool:
    """Whether a condition is equally true in every run: no name is in it, or it is `x == x`, `x or True`, `(x, y)`."""
    match condition:
        case ast.BoolOp(ast.Or(), values):
            return any(map(is_constant, values))
        case ast.UnaryOp(ast.Not(), operand):
            return is_constant(operand)
        case ast.Tuple(elts) | ast.List(elts) | ast.Set(elts) if elts:
            return True
        case ast.Lambda() | ast.GeneratorExp():
            return True
        case ast.Compare(left, [ast.Eq() | ast.Is() | ast.LtE() | ast.GtE()], [right]) if not _calls(left):
            if ast.dump(left) == ast.dump(right):
                return True
    return not any(isinstance(node, ast.Name) for node in ast.walk(condition))


def _calls(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Call | ast.Await | ast.Yield) for inner in ast.walk(node))


def _names(node: ast.expr) -> Iterator[str]:
    """The names that are called in `a.b(…).c(…)`, from the last to the first."""
    while True:
        match node:
            case ast.Call(function):
                match function:
                    case ast.Name(name) | ast.Attribute(attr=name):
                        yield name
                node = function
            case ast.Attribute(value) | ast.Subscript(value) | ast.Await(value):
                node = value
            case _:
                return


def _is_assertion(name: str) -> bool:
    return name.lstrip("_").startswith(("assert", "expect"))


class _Marking(ast.NodeTransformer):
    def __init__(self, file: str) -> None:
        self._file = file

    def visit_Assert(self, node: ast.Assert) -> Any:
        return node if is_constant(node.test) else [node, self._held(node)]

    def visit_With(self, node: ast.With | ast.AsyncWith) -> Any:
        self.generic_visit(node)
        called = [name for item in node.items for name in _names(item.context_expr)]
        return [node, self._held(node)] if any(name in _BLOCKS or _is_assertion(name) for name in called) else node

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_Expr(self, node: ast.Expr) -> Any:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(call, ast.Call):
            return node
        names = list(_names(call))
        if names and (_is_assertion(names[0]) or names[0] in _BLOCKS) and not _calls(call.func):
            return [node, self._call(node, CALLED, call.func)]
        return [node, self._held(node)] if any(map(_is_assertion, names)) else node

    def _held(self, node: ast.stmt) -> ast.Expr:
        return self._call(node, HELD)

    def _call(self, node: ast.stmt, name: str, *functions: ast.expr) -> ast.Expr:
        place = ast.Constant(f"{self._file}:{node.lineno}:{node.col_offset}")
        call = ast.Expr(ast.Call(ast.Name(name, ast.Load()), [place, *functions], []))
        for inner in (call, call.value, call.value.func, place):  # type: ignore[attr-defined]
            ast.copy_location(inner, node)
        return call
