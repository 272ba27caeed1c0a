"""Bounds in words: "at least 0.001 nats" for the keyword `minimum` with the limit 0.001."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.base import strictjson
from harness.contract.bound import CLOSED, RULE, Bound
from harness.report.messages import number_text

__all__ = ["limit", "of"]


def of(bound: Bound | None, unit: str = "") -> str:
    """Return a bound in words. A rule stays as it is in the contract; without a bound the text is empty."""
    if bound is None:
        return ""
    write = _WORDS.get(bound.keyword)
    return str(bound) if write is None else write(bound.limit, unit)


def limit(argument: Any, unit: str = "") -> str:
    """Return the limit of a bound. A float keeps all its digits: 1.000001 is not 1."""
    if isinstance(argument, float) and unit != "B" and float(f"{argument:.6g}") != argument:
        return f"{argument!r} {unit}".rstrip()
    return number_text.value(argument, unit)


def _number(words: str) -> Callable[[Any, str], str]:
    return lambda argument, unit: f"{words} {limit(argument, unit)}"


def _count(thing: str, things: str) -> tuple[Callable[[Any, str], str], Callable[[Any, str], str]]:
    def most(number: int, _: str) -> str:
        return f"at most {number_text.counted(number, thing, things)}" if number else f"no {things}"

    return (lambda number, _: f"at least {number_text.counted(number, thing, things)}"), most


def _typed(argument: Any, _: str) -> str:
    return f"{'an' if argument[0] in 'aeiou' else 'a'} {argument}" if argument != "null" else "null"


def _one_of(argument: Any, unit: str) -> str:
    *others, last = [_quoted(item, "") for item in argument]
    return f"{', '.join(others)} or {last}" if others else last


def _quoted(argument: Any, unit: str) -> str:
    return argument if isinstance(argument, str) and argument else _exact(argument, unit)


def _exact(argument: Any, unit: str) -> str:
    if isinstance(argument, (int, float)) and not isinstance(argument, bool):
        return number_text.value(argument, unit)
    return strictjson.dumps(argument)


_LEAST_ITEMS, _MOST_ITEMS = _count("item", "items")
_LEAST_LETTERS, _MOST_LETTERS = _count("character", "characters")
_LEAST_ENTRIES, _MOST_ENTRIES = _count("entry", "entries")

_WORDS: dict[str, Callable[[Any, str], str]] = {
    "type": _typed,
    "const": _quoted,
    "enum": _one_of,
    "minimum": _number("at least"),
    "maximum": _number("at most"),
    "exclusiveMinimum": _number("above"),
    "exclusiveMaximum": _number("below"),
    "multipleOf": _number("a multiple of"),
    "minLength": _LEAST_LETTERS,
    "maxLength": _MOST_LETTERS,
    "pattern": lambda argument, _: f"of the form {argument}",
    "minItems": _LEAST_ITEMS,
    "maxItems": _MOST_ITEMS,
    "uniqueItems": lambda *_: "no item twice",
    "minProperties": _LEAST_ENTRIES,
    "maxProperties": _MOST_ENTRIES,
    CLOSED: lambda *_: "no undeclared properties",
    RULE: lambda argument, _: str(argument),
}
