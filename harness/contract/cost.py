"""A cost model that bounds the time to judge any observation by any accepted contract.

A cost is a number of steps of at most about 30 ns each. It depends on sizes only, so it is equal on every machine:

- `harness.contract.loader` estimates a contract from its `maxItems`, `maxProperties` and `maxLength`, and refuses one
  that costs more than LIMIT.
- `harness.judging.judge` computes the cost of each clause from the sizes of the measurements. It skips a clause that
  exceeds the remaining `Allowance`. So a run and `harness verify` reach the same judgment.

The costs of CEL were measured: each reference to a value copies it, and `map` and `filter` copy their result for each
item that they append.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any, Final

from harness.base.strictjson import DEEPEST, JsonObject
from harness.contract.expression import Node, NodeKind, engine

__all__ = [
    "ITEMS",
    "LIMIT",
    "Allowance",
    "Shape",
    "checking",
    "evaluation",
    "matching",
    "of_schema",
    "of_value",
    "of_values",
]

LIMIT: Final = 100_000_000
"""Steps for judging all trials of one run of a claim, the mutants' included. At most about three seconds."""

ITEMS: Final = 1_000
_CHARACTERS = 200
"""Assumed lengths of a list or map, and of a text, without a declared maximum. For a list within a list it is a
hundredth."""
_KEY = 4
"""Steps for an entry of a map, in addition to its value."""
_LONG = 64
"""Characters that are copied or compared in one step."""
_CHARACTER = 100
"""Steps to read a character by the largest `pattern` (see `harness.contract.keywords`)."""
_STATES = 20
"""States of an expression of `matches` that read one character in one step."""
_ITERATION = 3
"""Steps of a macro for an item, in addition to its body."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a value, measured or an upper bound."""

    length: int = 0
    """Items of a list, or entries of a map."""
    inner: Shape | None = None
    """The largest item, entry or key; None if the value is not a list or map."""
    text: int = 0
    """Characters of a text."""
    size: int = 1
    """Steps to copy the value."""

    @property
    def longest(self) -> int:
        """The length of the longest text in the value."""
        return max(self.text, 0 if self.inner is None else self.inner.longest)

    def joined(self, other: Shape) -> Shape:
        """Return an upper bound of both shapes."""
        inner = _joined([shape for shape in (self.inner, other.inner) if shape is not None])
        length, text, size = (max(getattr(self, name), getattr(other, name)) for name in ("length", "text", "size"))
        return Shape(length, inner, text, size)

    def at(self, steps: Sequence[bool]) -> tuple[int, Shape]:
        """Return the number of values at a path below this one, and the shape of the largest.

        Args:
            steps: for each step of the path, whether it leads to every item or entry rather than to one property.
        """
        count, shape = 1, self
        for each in steps:
            count *= shape.length if each else 1
            shape = shape.inner or _SCALAR
        return min(count, self.size), shape


_SCALAR = Shape()


def _text(length: int) -> Shape:
    return Shape(text=length, size=1 + length // _LONG)


def _list(items: Sequence[Shape]) -> Shape:
    return Shape(len(items), _joined(items), size=1 + sum(item.size for item in items))


def _repeated(length: int, item: Shape, weight: int = 0) -> Shape:
    return Shape(length, item, size=1 + length * (weight + item.size))


_NUMBERS = frozenset({int, float, bool, type(None)})


def of_value(value: Any, levels: int = DEEPEST) -> Shape:
    """Return the shape of a JSON value. Values nested deeper than `levels` are not judged and do not count."""
    if isinstance(value, str):
        return _text(len(value))
    if isinstance(value, (list, tuple)):
        if levels == 0 or _NUMBERS.issuperset(map(type, value)):
            return _repeated(len(value), _SCALAR)
        return _list([of_value(item, levels - 1) for item in value])
    if isinstance(value, Mapping):
        key = _text(max(map(len, value), default=0))
        entries = of_value(list(value.values()), levels)
        inner = key if entries.inner is _SCALAR else key.joined(entries.inner or _SCALAR)
        return Shape(len(value), inner, size=entries.size + len(value) * (key.size + _KEY))
    return _SCALAR


def of_schema(schema: JsonObject, assumed: int = ITEMS) -> Shape:
    """Return the largest shape that an observation schema without references allows.

    Args:
        assumed: the length of a list or map without a declared maximum.
    """
    inside = max(1, assumed // 100)
    if "const" in schema or "enum" in schema:
        return _joined([of_value(value) for value in schema.get("enum", [schema.get("const")])]) or _SCALAR
    if "properties" in schema:
        values = _list([of_schema(schema_of_property, assumed) for schema_of_property in schema["properties"].values()])
        names = of_value(dict.fromkeys(schema["properties"]))
        return replace(names, inner=_joined([names.inner, values.inner]), size=names.size + values.size)
    if "additionalProperties" in schema:
        entry = of_schema(schema["additionalProperties"], inside).joined(_text(_CHARACTERS))
        most = schema.get("maxProperties", max(assumed, schema.get("minProperties", 0)))
        return _repeated(most, entry, 2 + _KEY + _CHARACTERS // _LONG)
    if schema.get("type") == "array":
        most = schema.get("maxItems", max(assumed, schema.get("minItems", 0)))
        return _repeated(most, of_schema(schema.get("items", {}), inside))
    if schema.get("type") == "string":
        return _text(schema.get("maxLength", max(_CHARACTERS, schema.get("minLength", 0))))
    return _SCALAR


def of_values(objects: Collection[JsonObject]) -> dict[str, Shape]:
    """Return an upper bound of the shapes of each name's values in these objects."""
    names = {name for item in objects for name in item}
    return {name: _joined([of_value(item[name]) for item in objects if name in item]) or _SCALAR for name in names}


def _joined(shapes: Collection[Shape | None]) -> Shape | None:
    known = {shape for shape in shapes if shape is not None}
    return reduce(Shape.joined, known) if known else None


class Allowance:
    """The remaining cost for judging one trial."""

    __slots__ = ("left",)

    def __init__(self, mutants: int = 0) -> None:
        """Args:
        mutants: the number of mutants of the contract. All trials of a run share the limit.
        """
        self.left = LIMIT // (1 + mutants)

    def pays(self, cost: int) -> bool:
        """Subtract a clause's cost if enough is left. Returns whether it was."""
        if cost > self.left:
            return False
        self.left -= cost
        return True


def checking(keyword: str, argument: Any, steps: Sequence[bool], shape: Shape) -> int:
    """Return the steps to check a keyword for every value at a path, given as for `Shape.at`."""
    count, value = shape.at(steps)
    if keyword == "pattern":
        return count * (10 + _CHARACTER * value.longest)
    whole = min(count * value.size, shape.size) if keyword in _WHOLE else count
    return whole * _CHECKING.get(keyword, 10)


_WHOLE = frozenset({"const", "enum", "uniqueItems"})
"""Keywords that read the whole value."""
_CHECKING = {"multipleOf": 100, "uniqueItems": 20, "const": 20, "enum": 20}
"""Steps to check one value, and to locate it if it fails."""


def evaluation(tree: Node, shapes: Mapping[str, Mapping[str, Shape]]) -> int:
    """Return the steps to evaluate a rule, given the shapes of the values of `self`, `parameters` and `device`."""
    return _Evaluation(shapes).of(tree, {})[0]


class _Evaluation:
    """Computes the cost of a tree's nodes and the shapes of their results. All branches count."""

    def __init__(self, shapes: Mapping[str, Mapping[str, Shape]]) -> None:
        self._shapes = shapes

    def of(self, node: Node, bound: Mapping[str, Shape]) -> tuple[int, Shape]:
        if node.kind is NodeKind.STRING:
            return 1, _text(len(node.text))
        if node.kind is NodeKind.NAME:
            shape = bound.get(node.text, _SCALAR)
            return shape.size, shape
        of = node.children[0] if node.kind is NodeKind.SELECT else None
        if of is not None and of.kind is NodeKind.NAME and of.text not in bound:
            shape = self._shapes.get(of.text, {}).get(node.text, _SCALAR)
            return shape.size, shape
        if node.is_macro:
            return self._macro(node, bound)
        children = [self.of(child, bound) for child in node.children]
        shapes = [shape for _, shape in children]
        sizes = sum(shape.size for shape in shapes)
        cost = 1 + sum(cost for cost, _ in children) + sizes
        if node.kind in (NodeKind.SELECT, NodeKind.INDEX):
            return cost, shapes[0].inner or _SCALAR
        if node.kind in (NodeKind.LIST, NodeKind.MAP):
            return cost, replace(_list(shapes), size=1 + sizes + _KEY * len(shapes))
        if node.kind is NodeKind.CONDITIONAL:
            return cost, shapes[1].joined(shapes[2])
        if node.text == "+":
            left, right = shapes
            whole = Shape(
                left.length + right.length, left.joined(right).inner, left.text + right.text, left.size + right.size
            )
            return cost + whole.size, whole
        if node.text == "in":
            return cost + shapes[0].size * max(1, shapes[1].length), _SCALAR
        if node.text == "string" and shapes:
            return cost, _text(max(_CHARACTERS, shapes[0].text))
        if node.text == "matches":  # a rule has it with a literal only
            return cost + matching(_literal(node.children[1].text), shapes[0].text), _SCALAR
        return cost, _SCALAR

    def _macro(self, node: Node, bound: Mapping[str, Shape]) -> tuple[int, Shape]:
        over, name, *bodies = node.children
        cost, shape = self.of(over, bound)
        count, item = shape.length, shape.inner or _SCALAR
        inside = {**bound, name.text: item}
        costs = [self.of(body, inside) for body in bodies]
        cost += count * (_ITERATION + item.size + sum(body_cost for body_cost, _ in costs))
        if node.text in ("all", "exists"):
            return cost, _SCALAR
        result_shape = costs[-1][1] if node.text == "map" else item if node.text == "filter" else _SCALAR
        # For each item, what was kept so far is copied.
        return cost + count * (count + 1) * result_shape.size, _repeated(count, result_shape)


def matching(expression: str, length: int) -> int:
    """Return an upper bound of the steps of `matches`, which compiles the expression for every text.

    Each character costs as much as an atom, and is repeated as often as all counts together ask.
    """
    flags = set("".join(_FLAGS.findall(expression)))
    if "x" in flags:  # counts then may contain spaces and comments
        return _NEVER
    atoms = 10 * len(expression) + sum(steps * len(atom.findall(expression)) for atom, steps in _ATOMS)
    counts = [max(1, *map(int, filter(None, pair))) for pair in _COUNT.findall(expression)]
    compiling = math.prod([atoms, *counts]) * (_FOLDED if "i" in flags else 1)
    return 250 + compiling + length * compiling // 10 // _STATES


_ATOMS = ((re.compile(r"\\[wWpP]"), 10_000), (re.compile(r"\.|\[\^|\\[dDsSbB]"), 400))
"""Atoms that take many steps to compile: Unicode's tables make words and properties large."""
_COUNT = re.compile(r"\{(\d{1,9}),?(\d{0,9})\}")
_FOLDED = 200
"""Factor for an expression that ignores case."""
_FLAGS = re.compile(r"\(\?([a-zA-Z-]+)")
_NEVER = 1 << 62


@lru_cache(maxsize=1024)
def _literal(text: str) -> str:
    """Return the value of a CEL string literal."""
    return str(engine().compile(text).execute({}))
