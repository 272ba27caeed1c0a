"""Formats bounds: "at least 0.001 nats" for the keyword `minimum` with the limit 0.001."""

from __future__ import annotations

from typing import Any, Final

from harness.base import strictjson
from harness.contract.bound import CLOSED, RULE, Bound
from harness.report.messages import number_text

__all__ = ["of"]

_LIMITS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "above",
    "exclusiveMaximum": "below",
    "multipleOf": "a multiple of",
}
_SIZES: Final = {"Items": ("item", "items"), "Length": ("character", "characters"), "Properties": ("entry", "entries")}


def of(bound: Bound | None, unit: str = "") -> str:
    """Format a bound. A rule is returned as in the contract; None becomes an empty text."""
    if bound is None:
        return ""
    keyword, argument = bound.keyword, bound.limit
    match keyword:
        case "type":
            return "null" if argument == "null" else f"{'an' if argument[0] in 'aeiou' else 'a'} {argument}"
        case "const":
            return _exact(argument, unit)
        case "enum":
            *others, last = [_exact(item) for item in argument]
            return f"{', '.join(others)} or {last}" if others else last
        case "pattern":
            return f"of the form {argument}"
        case "uniqueItems":
            return "no item twice"
        case _ if keyword in _LIMITS:
            return f"{_LIMITS[keyword]} {_limit(argument, unit)}"
        case _ if keyword[:3] in ("min", "max"):
            thing, things = _SIZES[keyword[3:]]
            if keyword.startswith("max") and not argument:
                return f"no {things}"
            least = "least" if keyword.startswith("min") else "most"
            return f"at {least} {number_text.counted(argument, thing, things)}"
    return {CLOSED: "no undeclared properties", RULE: str(argument)}.get(keyword, str(bound))


def _limit(argument: Any, unit: str) -> str:
    """Return the limit of a bound. A float keeps all its digits: 1.000001 is not 1."""
    if isinstance(argument, float) and unit != "B" and float(f"{argument:.6g}") != argument:
        return f"{argument!r} {unit}".rstrip()
    return number_text.value(argument, unit)


def _exact(argument: Any, unit: str = "") -> str:
    """Format a required value: a number with its unit, a string unchanged, anything else as JSON."""
    if isinstance(argument, str) and argument:
        return argument
    if isinstance(argument, (int, float)) and not isinstance(argument, bool):
        return number_text.value(argument, unit)
    return strictjson.dumps(argument)
