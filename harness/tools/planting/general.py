"""Operators for any source: constants, signs, comparisons, dropped statements, swapped arguments, axes, dtypes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from harness.tools.planting.syntax import Edit, Operator, Site, called, positional

__all__ = ["OPERATORS", "SAYING"]

_ARITHMETIC: Final[Mapping[type[ast.operator], tuple[str, str, str]]] = {
    ast.Add: ("sign", "+", "-"),
    ast.Sub: ("sign", "-", "+"),
    ast.Mult: ("arithmetic", "*", "/"),
    ast.Div: ("arithmetic", "/", "*"),
    ast.FloorDiv: ("arithmetic", "//", "*"),
    ast.Mod: ("arithmetic", "%", "//"),
    ast.Pow: ("arithmetic", "**", "*"),
    ast.LShift: ("arithmetic", "<<", ">>"),
    ast.RShift: ("arithmetic", ">>", "<<"),
    ast.BitAnd: ("arithmetic", "&", "|"),
    ast.BitOr: ("arithmetic", "|", "&"),
    ast.BitXor: ("arithmetic", "^", "&"),
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
}
_SYMMETRIC: Final = frozenset({"isinstance", "issubclass", "max", "min", "hasattr", "getattr", "cast", "allclose"})
SAYING: Final = frozenset({"print", "debug", "info", "warning", "warn", "error", "exception", "log", "echo"})
"""Calls that only print or log. Dropping them changes no result."""
_REDUCTIONS: Final = {
    "mean": "sum", "sum": "mean", "max": "min", "min": "max", "amax": "amin", "amin": "amax", "argmax": "argmin",
    "argmin": "argmax", "any": "all", "all": "any",
}  # fmt: skip
_AXIS_FIRST: Final = frozenset({
    "sum", "mean", "softmax", "log_softmax", "argmax", "argmin", "amax", "amin", "logsumexp", "cumsum", "unsqueeze",
    "squeeze", "any", "all", "std", "var",
})  # fmt: skip
_DTYPES: Final = {
    "float64": "float32", "double": "float32", "float32": "bfloat16", "bfloat16": "float16", "float16": "bfloat16",
    "int64": "int32", "int32": "int16", "uint64": "uint32", "uint32": "uint16",
}  # fmt: skip
_CONVERSIONS: Final = frozenset({"float", "double", "half", "bfloat16", "long"})
_COPIES: Final = frozenset({"clone", "copy", "contiguous"})
_IN_PLACE: Final = frozenset({"add", "sub", "mul", "div", "clamp", "exp", "log", "sqrt", "neg", "masked_fill"})
_GRADIENT_MODES: Final = {"no_grad": "enable_grad", "inference_mode": "enable_grad", "enable_grad": "no_grad"}


def _constant(site: Site) -> Iterator[Edit]:
    """Another number; the other truth."""
    if _is_index(site):
        return
    match site.node:
        case ast.Constant(value=bool(value)) as node:
            yield site.replace(node, str(not value))
        case ast.Constant(value=int(value)) as node:
            yield site.replace(node, str(value + 1))
        case ast.Constant(value=float(value)) as node:
            yield site.replace(node, repr(value * 2 or 1.0))


def _arithmetic(name: str) -> Operator:
    def operator(site: Site) -> Iterator[Edit]:
        match site.node:
            case ast.BinOp(left=left, op=op, right=right):
                kind, old, new = _ARITHMETIC.get(type(op), ("", "", ""))
                is_text = isinstance(left, (ast.Constant, ast.JoinedStr)) and not _is_number(left)
                if kind == name and not is_text:
                    yield from site.between(left, right, re.escape(old), new)
            case ast.AugAssign(target=target, op=op, value=value):
                kind, old, new = _ARITHMETIC.get(type(op), ("", "", ""))
                if kind == name:
                    yield from site.between(target, value, re.escape(f"{old}="), f"{new}=")
            case ast.UnaryOp(op=ast.USub(), operand=operand) as node if name == "sign" and not _is_index(site):
                yield site.replace(node, f"({site.code(operand)})")

    return operator


def _comparison(site: Site) -> Iterator[Edit]:
    """A bound included or excluded; the negated comparison."""
    node = site.node
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for left, right, kind in zip(operands, operands[1:], node.ops, strict=False):
            yield from site.between(left, right, *_COMPARISONS[type(kind)])


def _condition(site: Site) -> Iterator[Edit]:
    """The other branch; `and` for `or`; a filter that passes everything."""
    match site.node:
        case ast.If(test=test) | ast.IfExp(test=test):
            yield site.replace(test, f"(not ({site.code(test)}))")
        case ast.BoolOp(op=op, values=values):
            old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
            for left, right in pairwise(values):
                yield from site.between(left, right, rf"\b{old}\b", new)
        case ast.UnaryOp(op=ast.Not(), operand=operand) as node:
            yield site.replace(node, f"({site.code(operand)})")
        case ast.comprehension(ifs=tests):
            for test in tests:
                yield site.replace(test, "True")


def _dropped_statement(site: Site) -> Iterator[Edit]:
    """A statement with an effect, dropped."""
    node = site.node
    effect = isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete, ast.Assert))
    if isinstance(node, ast.Expr):
        effect = isinstance(node.value, (ast.Call, ast.Await)) and called(node.value) not in SAYING
    elif isinstance(node, ast.Assign):
        effect = all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    if effect and isinstance(node, ast.stmt):
        yield site.replace(node, "pass")


def _swapped_arguments(site: Site) -> Iterator[Edit]:
    """Two neighbouring arguments, exchanged."""
    node = site.node
    if not isinstance(node, ast.Call) or called(node) in _SYMMETRIC:
        return
    arguments = positional(node)
    for left, right in pairwise(arguments):
        first, second = site.code(left), site.code(right)
        if first != second:
            start, end = site.source.span(left)[0], site.source.span(right)[1]
            gap = site.source.content[site.source.span(left)[1] : site.source.span(right)[0]].decode()
            yield Edit(start, end, f"{second}{gap}{first}")


def _reduction(site: Site) -> Iterator[Edit]:
    """A sum for a mean, a minimum for a maximum."""
    match site.node:
        case ast.Call(func=ast.Attribute() | ast.Name() as function) as node if called(node) in _REDUCTIONS:
            yield site.rename(function, _REDUCTIONS[called(node)])


def _off_by_one(site: Site) -> Iterator[Edit]:
    """A range, a slice or an index that is one too short or too far."""
    match site.node:
        case ast.Call() as node if called(node) == "range" and (arguments := positional(node)):
            stop = arguments[0] if len(arguments) == 1 else arguments[1]
            yield site.replace(stop, f"({site.code(stop)}) - 1")
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield site.replace(lower, f"({site.code(lower)}) + 1")
            if upper is not None:
                yield site.replace(upper, f"({site.code(upper)}) - 1")
        case ast.Subscript(slice=index) if (value := _integer(index)) is not None:
            yield site.replace(index, str(value + 1 if value >= 0 else value - 1))


def _detach(site: Site) -> Iterator[Edit]:
    """A missing detach, or a gradient that is cut off."""
    match site.node:
        case ast.Call(func=ast.Attribute(value=value, attr="detach")) as node:
            yield site.replace(node, site.code(value))
        case ast.Attribute(attr=name) as node if name in _GRADIENT_MODES:
            yield site.rename(node, _GRADIENT_MODES[name])


def _axis(site: Site) -> Iterator[Edit]:
    """The neighbouring axis."""
    node = site.node
    if not isinstance(node, ast.Call):
        return
    axes = [keyword.value for keyword in node.keywords if keyword.arg in ("dim", "axis")]
    if called(node) in _AXIS_FIRST and isinstance(node.func, ast.Attribute):
        axes += positional(node)[:2]
    for axis in axes:
        value = _integer(axis)
        if value is not None:
            yield site.replace(axis, str({-1: -2, 0: 1}.get(value, value - 1 if value > 0 else value + 1)))
    if called(node) in ("transpose", "permute") and isinstance(node.func, ast.Attribute):
        yield site.replace(node, site.code(node.func.value))


def _transposition(site: Site) -> Iterator[Edit]:
    """A matrix without its transposition."""
    match site.node:
        case ast.Attribute(value=value, attr="T" | "mT", ctx=ast.Load()) as node:
            yield site.replace(node, site.code(value))


def _dtype(site: Site) -> Iterator[Edit]:
    """A narrower or another dtype; a conversion dropped."""
    match site.node:
        case ast.Attribute(attr=name) as node if name in _DTYPES and not _is_called(site):
            yield site.rename(node, _DTYPES[name])
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=[]) as node if name in _CONVERSIONS:
            yield site.replace(node, site.code(value))


def _in_place(site: Site) -> Iterator[Edit]:
    """A change of memory that others use: a copy dropped, or an operation in place."""
    match site.node:
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=[]) as node if name in _COPIES:
            yield site.replace(node, site.code(value))
        case ast.Call(func=ast.Attribute(value=value, attr=name) as method) if name in _IN_PLACE:
            if not _is_module(value):
                yield site.rename(method, f"{name}_")
        case ast.Call(args=[first, *_]) as node if called(node) == "deepcopy":
            yield site.replace(node, f"({site.code(first)})")
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(left=left, op=op, right=right)) as node:
            operator = _ARITHMETIC.get(type(op), ("", "", ""))[1]
            if operator and site.code(left) == name:
                yield site.replace(node, f"{name} {operator}= {site.code(right)}")


def _is_called(site: Site) -> bool:
    return isinstance(site.parent, ast.Call) and site.parent.func is site.node


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "math", "np", "numpy", "F", "functional", "operator")


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _integer(node: ast.expr) -> int | None:
    """The value of an integer literal, also of a negative one; None for another node."""
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) is int:
            return -value
    return None


def _is_index(site: Site) -> bool:
    """Whether a literal is an index, a bound of a slice, or an axis, which other operators change."""
    node, parent = site.node, site.parent
    if isinstance(parent, ast.UnaryOp):
        node, parent = parent, site.source.parents.get(parent)
    if isinstance(parent, ast.keyword):
        return parent.arg in ("dim", "axis")
    return isinstance(parent, ast.Slice) or (isinstance(parent, ast.Subscript) and parent.slice is node)


OPERATORS: Final[Mapping[str, Operator]] = {
    "constant": _constant,
    "sign": _arithmetic("sign"),
    "arithmetic": _arithmetic("arithmetic"),
    "comparison": _comparison,
    "condition": _condition,
    "dropped-statement": _dropped_statement,
    "swapped-arguments": _swapped_arguments,
    "reduction": _reduction,
    "off-by-one": _off_by_one,
    "detach": _detach,
    "axis": _axis,
    "transposition": _transposition,
    "dtype": _dtype,
    "in-place": _in_place,
}
"""Operators by name, in order. If two make the same edit, the first counts."""
