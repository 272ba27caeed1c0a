"""Hypothesis strategies for values of an observation schema.

There are two kinds of values: those that satisfy a schema, and those that violate one given clause of it. Both are
drawn first from a pool: examples, bounds and their neighbours, literals of rules, and parameters. Two measurements are
equal, or meet a bound exactly, only if both are drawn from the same few values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hypothesis import strategies as st

from harness.base.strictjson import JsonObject
from harness.contract.clauses import ITEM, VALUE, SchemaClause, is_finite, nodes
from harness.contract.keywords import check_of, identity, is_number

__all__ = ["Strategy", "fitting", "pool_of", "replaced", "values", "violations"]

Strategy = st.SearchStrategy[Any]

_NUMBERS = (0, 1, 2, 3, 4, 5, 6, 7, 8, -1, 0.5, 10, 100, 1000, 1e-6, 1e6)
_TEXTS = ("", "a", "b", "text", "0" * 64)
_OTHER_TYPES: tuple[Any, ...] = ("text", 1.5, True, None, [], {}, 0, [1.5], {"a": 1.5})
_MOST_WRONG = 30
_MOST_ITEMS = 200  # no list is drawn longer than this unless its schema asks for more
_NOT_CHECKS = frozenset({"properties", "items", "additionalProperties", "title", "description", "examples"})
_LIMITS = ("const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems")


def pool_of(schema: JsonObject, others: Iterable[Any]) -> tuple[Any, ...]:
    """The pool of a contract: `others`, the bounds and examples of its schema, and a few common numbers and texts."""
    arguments = [
        value
        for _, node in nodes(schema)
        for value in (*node.get("enum", ()), *node.get("examples", ()), *(node[key] for key in _LIMITS if key in node))
    ]
    literals = []
    for value in (*others, *arguments):
        if isinstance(value, str):
            literals.append(value)
        elif is_number(value):
            literals += [value, *_neighbours(value)]
    return tuple(_unique(filter(is_finite, (*literals, *_NUMBERS, *_TEXTS))))


def values(schema: JsonObject, pool: tuple[Any, ...]) -> Strategy:
    """Values that satisfy a schema without references. Its examples that satisfy it come first."""
    fits = _fits(schema)
    examples = [value for value in schema.get("examples", []) if fits(value)]
    made = _made(schema, pool, fits)
    return st.sampled_from(examples) | made if examples else made


def fitting(schema: JsonObject, candidates: Iterable[Any]) -> list[Any]:
    """The candidates that satisfy the keywords of a schema. The insides of lists and maps are not checked."""
    return list(dict.fromkeys(filter(_fits(schema), candidates)))


def violations(clause: SchemaClause, schema: JsonObject, value: Any, pool: tuple[Any, ...]) -> list[Any]:
    """Values that violate a clause, made from `value`, which satisfies it. The nearest come first. Can be empty."""
    near: list[Any] = []
    typed: JsonObject = {}
    if clause.keyword != "type":
        near = [*_near_misses(clause.keyword, clause.argument, value), *pool]
        # A value of another type violates `type` already, so it does not show that a bound can be violated.
        typed = {key: schema[key] for key in schema if key == "type"}
    fits_type = _fits(typed)
    wrong = (value for value in (*near, *_OTHER_TYPES) if fits_type(value) and not clause.check(value))
    return _unique(wrong)[:_MOST_WRONG]


def replaced(whole: Any, path: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """A copy of a value with the first value at a path changed; the value itself if there is none at the path."""
    if not path:
        return change(whole)
    step, rest = path[0], path[1:]
    if step == ITEM and isinstance(whole, list) and whole:
        return [replaced(whole[0], rest, change), *whole[1:]]
    if step == VALUE and isinstance(whole, dict) and whole:
        step = next(iter(whole))
    if isinstance(whole, dict) and step in whole:
        return {**whole, step: replaced(whole[step], rest, change)}
    return whole


def _made(schema: JsonObject, pool: tuple[Any, ...], fits: Callable[[Any], bool]) -> Strategy:
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    match schema["type"]:
        case "object":
            return _objects(schema, pool)
        case "array":
            return _arrays(schema, pool)
        case "string":
            return _texts(schema, pool, fits)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    return _numbers(schema, pool, fits)


def _objects(schema: JsonObject, pool: tuple[Any, ...]) -> Strategy:
    if "additionalProperties" not in schema:
        return st.fixed_dictionaries(
            {name: values(inner, pool) for name, inner in schema.get("properties", {}).items()}
        )
    least = max(1, schema.get("minProperties", 0))
    names = [f"name{index}" for index in range(least + 1)][: schema.get("maxProperties", least + 1)]
    item = values(schema["additionalProperties"], pool)
    sizes = st.sampled_from([names, names[:least]])
    return sizes.flatmap(lambda chosen: st.fixed_dictionaries(dict.fromkeys(chosen, item)))


def _arrays(schema: JsonObject, pool: tuple[Any, ...]) -> Strategy:
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    longest = max(least, min(most, _MOST_ITEMS))
    item = values(schema.get("items", {"type": "number"}), pool)
    wanted = (max(least, min(3, most)), least, least + 1, most, *filter(is_number, pool))
    sizes = list(dict.fromkeys(int(size) for size in wanted if least <= size <= longest and size == int(size))) or [
        least
    ]
    few = st.lists(item, min_size=1, max_size=3)
    if schema.get("uniqueItems"):
        others = _distinct(schema.get("items", {"type": "number"}), pool, max(sizes[:3]) + 3)
        if len(others) < least:  # a type with few values, or texts of a pattern
            return st.lists(item, min_size=least).map(_unique)
        return st.builds(lambda size, chosen: _unique([*chosen, *others])[:size], st.sampled_from(sizes[:3]), few)
    return st.builds(
        lambda size, chosen: [chosen[index % len(chosen)] for index in range(size)], st.sampled_from(sizes), few
    )


def _distinct(schema: JsonObject, pool: tuple[Any, ...], count: int) -> list[Any]:
    """Return up to `count` different values that satisfy a schema, without drawing them."""
    fits = _fits(schema)
    if "const" in schema or "enum" in schema:
        candidates: Iterable[Any] = schema.get("enum", [schema.get("const")])
    elif schema["type"] in ("number", "integer"):
        candidates = _spread(schema, count)
    elif schema["type"] == "string":
        length = max(schema.get("minLength", 1), len(str(count)))
        candidates = [
            *(text for text in pool if isinstance(text, str)),
            *(f"{number:0{length}}" for number in range(count)),
        ]
    elif schema["type"] == "array":
        least = max(1, schema.get("minItems", 1))
        inner = _distinct(schema.get("items", {"type": "number"}), pool, count + least - 1)
        candidates = [inner[first : first + least] for first in range(len(inner) - least + 1)]
    elif schema["type"] == "object":
        names = [*schema.get("properties", {})] or [f"name{index}" for index in range(schema.get("minProperties", 1))]
        columns = [
            _distinct(
                schema.get("properties", {}).get(name) or schema.get("additionalProperties", {"type": "number"}),
                pool,
                count,
            )
            for name in names
        ]
        rows = range(count) if all(columns) else ()
        candidates = [
            {name: column[row % len(column)] for name, column in zip(names, columns, strict=True)} for row in rows
        ]
    else:
        candidates = [False, True] if schema["type"] == "boolean" else [None]
    return _unique(filter(fits, candidates))[:count]


def _spread(schema: JsonObject, count: int) -> Iterator[Any]:
    """Numbers between the bounds of a schema, from the one nearest to zero on."""
    least = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    most = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    step = schema.get("multipleOf", 1)
    if schema["type"] == "number" and "multipleOf" not in schema and math.isfinite(most - least):
        step = (most - least) / (count + 2)
    if math.isfinite(least):
        first = least
    elif math.isfinite(most):
        first, step = most, -step
    else:
        first = 0
    if schema["type"] == "integer" or "multipleOf" in schema:
        first = math.ceil(first / step) * step  # towards the inside: `step` is negative below an upper bound
    for index in range(count + 3):
        number = first + index * step
        yield int(number) if schema["type"] == "integer" else number


def _texts(schema: JsonObject, pool: tuple[Any, ...], fits: Callable[[Any], bool]) -> Strategy:
    lengths = [schema[key] for key in ("minLength", "maxLength") if schema.get(key, 10**9) <= 10_000]
    raw = [*(text for text in pool if isinstance(text, str)), *("a" * length for length in lengths)]
    good = list(filter(fits, raw))
    if good or "pattern" not in schema:
        return st.sampled_from(good or raw)
    try:  # as Python reads the pattern; the check reads nearly every pattern in the same way
        strategy = st.from_regex(schema["pattern"], fullmatch=True)
        strategy.validate()
    except Exception:  # Python does not accept all of its syntax
        return st.just("")
    return strategy.filter(fits)


def _numbers(schema: JsonObject, pool: tuple[Any, ...], fits: Callable[[Any], bool]) -> Strategy:
    whole, step = schema["type"] == "integer", schema.get("multipleOf")
    multiples = [step * index for index in range(5)] if step else []
    good = list(dict.fromkeys(int(number) if whole else number for number in (*pool, *multiples) if fits(number)))
    least = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    most = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    if not good:
        return st.sampled_from([bound for bound in (least, most) if is_finite(bound)] or [0])
    # Between the bounds, in hundredths. Random doubles rarely find more, and take longer.
    low = least if math.isfinite(least) else min(most, 0) - 100
    high = most if math.isfinite(most) else max(least, 0) + 100
    if step or not math.isfinite(high - low):
        return st.sampled_from(good)
    between = st.integers(0, 100).map(lambda share: low + (high - low) * share / 100).map(round if whole else float)
    return st.sampled_from(good) | between.filter(fits)


def _unique(items: Iterable[Any]) -> list[Any]:
    distinct: dict[Any, Any] = {}
    for item in items:
        distinct.setdefault(identity(item), item)
    return list(distinct.values())


def _near_misses(keyword: str, argument: Any, value: Any) -> Iterator[Any]:
    """Values like `value` that are likely to violate a keyword."""
    if is_number(argument):
        below, above = max(0, int(argument) - 1), int(argument) + 1
        if isinstance(value, str):
            yield from (value[:below], ((value or "a") * above)[:above])
        elif isinstance(value, list):
            yield from (value[:below], (value or [1.5]) * above, [*value, *(value[-1:] or [1.5])])
        elif isinstance(value, dict):
            spare = next(iter(value.values()), 1.5)
            yield dict(list(value.items())[:below])
            yield {**value, **{f"other{index}": spare for index in range(above)}}
        else:
            yield from _neighbours(argument)
    if keyword in ("const", "enum") and isinstance(value, bool):
        yield not value
    if isinstance(value, str):
        yield from ("", f"{value}!", f" {value}", "!", value.swapcase(), value[:-1])
    if isinstance(value, list):
        yield from ([*value, *value[:1]], [*value[:-1], *value[:1]], value[:-1], [*value, 1.5])
    if isinstance(value, dict):
        yield {**value, "undeclared": 1.5}


def _neighbours(number: Any) -> Iterator[Any]:
    yield from (number - 1, number + 1)
    if isinstance(number, float):
        yield from (math.nextafter(number, -math.inf), math.nextafter(number, math.inf))
    yield from (number * 2, -number, number / 2 if isinstance(number, float) else number // 2, number + 0.5)


def _fits(schema: JsonObject) -> Callable[[Any], bool]:
    keywords = [key for key in schema if key not in _NOT_CHECKS and not key.startswith(("x-", "$"))]
    checks = [check_of(key, schema[key]) for key in keywords]
    return lambda value: is_finite(value) and all(check(value) for check in checks)
