"""Operators for mistakes of state, sizes and error paths, which tests with one call and one shape do not detect."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from harness.tools.planting.general import SAYING
from harness.tools.planting.syntax import Edit, Operator, Site, called

__all__ = ["OPERATORS"]

_CACHE: Final = re.compile(r"cache|memo|kept|known|seen|compiled", re.IGNORECASE)
_SHAPES: Final = '[getattr(one, "shape", None) for one in list(locals().values())]'
"""The attributes that a cache by shape uses as its key."""


def _cache_key(site: Site) -> Iterator[Edit]:
    """The key of a cache without one of its elements."""
    match site.node:
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=ast.Tuple() as key):
            of_cache = _CACHE.search(name)
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Tuple() as key):
            of_cache = re.search("key$", name)
        case _:
            return
    elements = [site.code(expression) for expression in key.elts]
    for left_out in range(len(elements)) if of_cache and len(elements) > 1 else ():
        rest = [one for place, one in enumerate(elements) if place != left_out]
        yield site.replace(key, f"({', '.join(rest)},)")


def _remembered_result(site: Site) -> Iterator[Edit]:
    """A cache of the first result, for all arguments or for arguments of the same shapes."""
    match site.node:
        case ast.FunctionDef(name=name, body=[*_, ast.Return(value=ast.expr() as value)]) as function if (
            not name.startswith("__") and _takes_values(function)
        ):
            text = site.code(value)
            yield site.replace(value, f'globals().setdefault("_kept_{name}", ({text}))')
            yield site.replace(value, f'globals().setdefault(("_kept_{name}", str({_SHAPES})), ({text}))')


def _takes_values(function: ast.FunctionDef) -> bool:
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    yields = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function))
    return not yields and any(name not in ("self", "cls") for name in names)


def _equal_sizes(site: Site) -> Iterator[Edit]:
    """Another size of the same tensor."""
    match site.node:
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=index):
            yield from _other_axis(site, index)
        case ast.Call(func=ast.Attribute(attr="size"), args=[index]):
            yield from _other_axis(site, index)


def _other_axis(site: Site, index: ast.expr) -> Iterator[Edit]:
    match index:
        case ast.Constant(value=int(axis)):
            yield site.replace(index, str(axis + 1 if axis == 0 else axis - 1))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(axis))):
            yield site.replace(index, f"-{axis + 1 if axis == 1 else axis - 1}")


def _swallowed_exception(site: Site) -> Iterator[Edit]:
    """A handler without its `raise`, or a call whose exceptions are suppressed."""
    match site.node:
        case ast.ExceptHandler(body=[*_, ast.Raise()] as body):
            start, end = site.source.span(body[0])[0], site.source.span(body[-1])[1]
            yield Edit(start, end, "pass")
        case ast.Expr(value=ast.Call() as call) if "\n" not in site.code(call) and called(call) not in SAYING:
            yield site.replace(call, f'with __import__("contextlib").suppress(Exception): {site.code(call)}')


OPERATORS: Final[Mapping[str, Operator]] = {
    "cache-key": _cache_key,
    "remembered-result": _remembered_result,
    "equal-sizes": _equal_sizes,
    "swallowed-exception": _swallowed_exception,
}
