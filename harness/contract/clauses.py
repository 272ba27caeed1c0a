"""The clauses of an observation schema: each keyword that a measurement can violate.

A validator only reports "invalid". A judgment reports for each bound whether it holds, and for which value. So the
loader splits the schema into clauses.

Clauses differ from JSON Schema on purpose:

- A clause on a missing measurement is NOT_MEASURED.
- A clause on the items of an empty list or map is NOT_MEASURED, and so is `maxItems`, `maxProperties` or `uniqueItems`
  of one, unless it requires an empty one.
- A number that is not finite fails every clause that reads it.
- A keyword never holds for a value of another type (see `harness.contract.keywords`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.base import strictjson
from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import DEEPEST, LARGEST, JsonObject, is_tagged
from harness.base.vocabulary import Outcome
from harness.contract.bound import CLOSED, Bound
from harness.contract.cost import Allowance, Shape, checking, of_value
from harness.contract.keywords import PatternError, check_of, is_number
from harness.contract.reasons import Reason, ReasonCode

__all__ = [
    "ANNOTATIONS",
    "ITEM",
    "VALUE",
    "Clause",
    "ClauseResult",
    "SchemaClause",
    "clauses_of",
    "empty_place",
    "is_finite",
    "judge_schema",
    "nodes",
    "values_at",
]

_LONGEST_TEXT, _MOST_ITEMS = 200, 8
ITEM, VALUE = "[]", "{}"
"""Steps of a path: every item of a list, every value of a map. No property has such a name."""

_TRUE_OF_NOTHING = frozenset({"maxItems", "maxProperties", "uniqueItems"})
"""Keywords that an empty list or map satisfies vacuously, unless they require it to be empty (`maxItems` 0)."""
ANNOTATIONS = frozenset({"title", "description", "examples", "x-unit", "x-source"})
_STRUCTURE = frozenset({"properties", "items", "additionalProperties"})
# Of many values, a judgment shows the one that decides: the nearest to the bound, or the farthest beyond it.
_DECISIVE: Mapping[str, Callable[[list[Any]], Any]] = {
    "minimum": min,
    "exclusiveMinimum": min,
    "maximum": max,
    "exclusiveMaximum": max,
}


@dataclass(slots=True)  # not frozen: that takes a third of the time of a judgment
class ClauseResult(JsonDataclass):
    """One clause of a judgment: its outcome, the value that decided, and the bound."""

    id: str
    outcome: Outcome
    value: Any = None
    """The value that decided. For a rule, everything that it reads, by path. `brief` shortens long values."""
    bound: Bound | None = None
    """None if the contract has no such clause, as for a replayed counterexample of another contract."""
    unit: str = ""
    reason: Reason | None = None
    """Why the outcome is not PASS; None for a PASS."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition that an observation can violate."""

    id: str
    bound: Bound


@dataclass(frozen=True, slots=True)
class SchemaClause(Clause):
    """One keyword of one subschema of the observation schema."""

    path: tuple[str, ...]
    """Property names; `ITEM` stands for every item of a list and `VALUE` for every value of a map."""
    unit: str
    source: str
    """The source of the bound, from `x-source`."""
    check: Callable[[Any], bool]

    @property
    def keyword(self) -> str:
        """The bound's keyword."""
        return self.bound.keyword

    @property
    def argument(self) -> Any:
        """The bound's limit."""
        return self.bound.limit

    def judge(self, values: list[Any], complete: bool, measurements: JsonObject) -> ClauseResult:
        """Judge the finite values at the clause's path. A failing value outranks a missing one."""
        if not all(map(self.check, values)):
            index = self._worst(values)
            reason = Reason(ReasonCode.VIOLATED, _place(measurements, self.path, index), bound=self.bound)
            return ClauseResult(self.id, Outcome.FAIL, brief(values[index]), self.bound, self.unit, reason)
        if not complete:
            return self.unmeasured(Reason(ReasonCode.MISSING, _missing_place(measurements, self.path)))
        if not values:
            return self.unmeasured(Reason(ReasonCode.EMPTY, _written(self.path)))
        if self.keyword in _TRUE_OF_NOTHING and self.argument and not all(values):
            where = _place(measurements, self.path, next(index for index, value in enumerate(values) if not value))
            return self.unmeasured(Reason(ReasonCode.EMPTY, where))
        decisive = _DECISIVE.get(self.keyword, _last)(values)
        return ClauseResult(self.id, Outcome.PASS, brief(decisive), self.bound, self.unit)

    def _worst(self, values: list[Any]) -> int:
        """Return the index of the worst failing value: the farthest beyond a limit, else the first."""
        failing = [value for value in values if not self.check(value)]
        decisive = _DECISIVE.get(self.keyword)
        worst = decisive(failing) if decisive is not None and all(map(is_number, failing)) else failing[0]
        return next(index for index, value in enumerate(values) if value is worst)

    def cost(self, shape: Shape) -> int:
        """Return the number of steps to judge the clause on a measurement of this shape."""
        return checking(self.keyword, self.argument, [step in (ITEM, VALUE) for step in self.path[1:]], shape)

    def unmeasured(self, reason: Reason) -> ClauseResult:
        """Return the NOT_MEASURED result for a clause without values."""
        return ClauseResult(self.id, Outcome.NOT_MEASURED, None, self.bound, self.unit, reason)

    def not_finite(self, value: Any, where: str) -> ClauseResult:
        """Return the FAIL result for a value with NaN, an infinity or an integer too large for a double."""
        return ClauseResult(
            self.id, Outcome.FAIL, brief(value), self.bound, self.unit, Reason(ReasonCode.NOT_FINITE, where)
        )


def brief(value: Any) -> Any:
    """Return a short value unchanged, and a summary of a long one. The observation has the whole value.

    A long text becomes {"beginning": first characters, "length": n}, a long list {"items": n}, a map {"entries": n}.
    """
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else {"beginning": value[:_LONGEST_TEXT], "length": len(value)}
    if isinstance(value, Mapping):
        number = strictjson.untag_nonfinite(value)
        return number if isinstance(number, float) else {"entries": len(value)}
    if isinstance(value, (list, tuple)):
        if len(value) <= _MOST_ITEMS:
            items = strictjson.untag_nonfinite(list(value))
            if not any(isinstance(item, (list, tuple, Mapping)) for item in items):
                return [brief(item) for item in items]
        return {"items": len(value)}
    return value


def judge_schema(
    clauses: Iterable[SchemaClause],
    measurements: JsonObject,
    finite: Mapping[str, bool],
    allowance: Allowance | None = None,
) -> Iterator[ClauseResult]:
    """Judge the measurements by every clause. A clause that exceeds the remaining allowance is NOT_MEASURED.

    Clauses of one path are adjacent (see `clauses_of`), so each path is traversed once.

    Args:
        finite: for each measurement, whether it is finite.
        allowance: the remaining cost for judging the trial; a full one by default.
    """
    allowance = allowance or Allowance()
    shapes = {name: of_value(value) for name, value in measurements.items()}
    path: tuple[str, ...] | None = None
    values: list[Any] = []
    complete = True
    broken: int | None = None
    for clause in clauses:
        name = clause.path[0] if clause.path else ""
        if name in shapes and not allowance.pays(clause.cost(shapes[name])):
            yield clause.unmeasured(Reason(ReasonCode.TOO_COSTLY, name))
            continue
        if clause.path != path:
            path = clause.path
            if len(path) == 1:  # most paths
                complete = path[0] in measurements
                values = [measurements[path[0]]] if complete else []
            else:
                complete = _follow(measurements, path, 0, values := [])
            broken = None
            if path and not finite.get(path[0], True):
                broken = next((index for index, value in enumerate(values) if not is_finite(value)), None)
        if broken is None:
            yield clause.judge(values, complete, measurements)
        else:
            yield clause.not_finite(values[broken], _place(measurements, clause.path, broken))


def nodes(schema: JsonObject, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], JsonObject]]:
    """Yield a schema without references and all its subschemas in preorder, each with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, (*path, name))
    for keyword, step in (("items", ITEM), ("additionalProperties", VALUE)):
        if keyword in schema:
            yield from nodes(schema[keyword], (*path, step))


def clauses_of(schema: JsonObject) -> Iterator[SchemaClause]:
    """Yield the clauses of an observation schema without references.

    Raises:
        PatternError: the engine refuses a `pattern`; `path` is the path of its property.
    """
    for path, node in nodes(schema):
        keywords = {
            keyword: argument
            for keyword, argument in node.items()
            if keyword not in ANNOTATIONS and keyword not in _STRUCTURE and (path or keyword != "type")
        }
        if path and "properties" in node:
            keywords[CLOSED] = sorted(node["properties"])
        for keyword, argument in keywords.items():
            try:
                check = check_of(keyword, argument)
            except PatternError as error:
                error.path = path
                raise
            unit, source = str(node.get("x-unit", "")), str(node.get("x-source", ""))
            yield SchemaClause(_written((*path, keyword)), Bound(keyword, argument), path, unit, source, check)


def values_at(measurements: JsonObject, path: tuple[str, ...]) -> list[Any]:
    """Return every measured value at a clause's path."""
    values: list[Any] = []
    _follow(measurements, path, 0, values)
    return values


def is_finite(value: Any, levels: int = DEEPEST) -> bool:
    """Whether every number in a JSON value is finite and fits a double. False if nested deeper than `levels`."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -LARGEST <= value <= LARGEST
    if isinstance(value, (list, tuple)):
        try:
            # A sum of floats is finite only if each float is. This is the fastest check in Python.
            if math.isfinite(sum(value, 0.0)):
                return True
        except (TypeError, OverflowError):
            pass
        return levels > 0 and all(is_finite(item, levels - 1) for item in value)
    if isinstance(value, dict):
        if len(value) == 1 and is_tagged(value):
            return False
        return levels > 0 and all(is_finite(item, levels - 1) for item in value.values())
    return True


def empty_place(value: Any, entries: frozenset[str]) -> str | None:
    """Return the path of an empty list or map in a value, such as "[2].times", "" for the value itself; else None.

    Args:
        entries: names of entries that a rule reads from items. Only these entries of a map are searched; in a map
            without any of them, all values are.
    """
    if not isinstance(value, (list, tuple, dict)):
        return None
    if not value:
        return ""
    if not entries:
        return None
    if isinstance(value, dict):
        read = entries.intersection(value) or value
        items: Iterable[tuple[str, Any]] = ((f".{name}", value[name]) for name in value if name in read)
    else:
        items = ((f"[{index}]", item) for index, item in enumerate(value))
    for name, item in items:
        place = empty_place(item, entries)
        if place is not None:
            return name + place
    return None


def _follow(container: Any, path: tuple[str, ...], start: int, values: list[Any]) -> bool:
    """Append every value at a path to `values`. Returns False if a value is missing."""
    for index in range(start, len(path)):
        step = path[index]
        if step in (ITEM, VALUE):
            items: Iterable[Any]
            if step == ITEM and isinstance(container, (list, tuple)):
                items = container
            elif step == VALUE and isinstance(container, dict):
                items = container.values()
            else:
                return False
            if index + 1 == len(path):
                values.extend(items)
                return True
            # A list rather than a generator: values after a missing one are needed too.
            return all([_follow(item, path, index + 1, values) for item in items])  # noqa: C419
        if not isinstance(container, dict) or step not in container:
            return False
        container = container[step]
    values.append(container)
    return True


def _places(container: Any, path: tuple[str, ...], where: str = "") -> Iterator[tuple[str, bool]]:
    """Yield a label such as `runs[2].loss` for every value at a path, and whether the value exists."""
    if not path:
        yield where, True
        return
    step, rest = path[0], path[1:]
    if step == ITEM and isinstance(container, (list, tuple)):
        for index, item in enumerate(container):
            yield from _places(item, rest, f"{where}[{index}]")
    elif step == VALUE and isinstance(container, dict):
        for name, item in container.items():
            yield from _places(item, rest, f"{where}[{name!r}]")
    elif step in (ITEM, VALUE):
        yield where, False
    else:
        name = f"{where}.{step}" if where else step
        if isinstance(container, dict) and step in container:
            yield from _places(container[step], rest, name)
        else:
            yield name, False


def _place(measurements: JsonObject, path: tuple[str, ...], index: int) -> str:
    present = [where for where, exists in _places(measurements, path) if exists]
    return present[index] or "the observation"


def _missing_place(measurements: JsonObject, path: tuple[str, ...]) -> str:
    return next(where for where, exists in _places(measurements, path) if not exists)


def _written(path: tuple[str, ...]) -> str:
    return ".".join(path).replace("." + ITEM, ITEM).replace("." + VALUE, VALUE)


def _last(values: list[Any]) -> Any:
    return values[-1]
