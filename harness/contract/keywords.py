"""The check of each keyword of an observation schema.

The checks are those of JSON Schema 2020-12 with one difference: a keyword never holds for a value of another type. In
JSON Schema, `{"minimum": 0}` accepts the text "broken". Here it does not, because a measurement of the wrong type must
never pass.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

__all__ = ["PatternError", "check_of", "identity", "is_number"]

_LARGEST_PATTERN = 1 << 16
"""Maximum bytes of a compiled `pattern`."""

Check = Callable[[Any], bool]


class PatternError(ValueError):
    """A regular expression is refused. The text states the reason."""

    path: tuple[str, ...] = ()
    """The path of the property with the `pattern`."""


def check_of(keyword: str, argument: Any) -> Check:
    """Return the check of one keyword. It never raises for a JSON value that fits Python's stack.

    Raises:
        PatternError: the argument of `pattern` is not a linear-time regular expression, or is too large.
    """
    return _CHECKS[keyword](argument)


def identity(value: Any) -> Any:
    """Return a hashable value that is equal for two JSON values if and only if JSON Schema calls them equal.

    In JSON Schema true differs from 1, 1 equals 1.0, and the order of keys does not matter.
    """
    if isinstance(value, bool) or value is None:
        return (value,)
    if isinstance(value, (list, tuple)):
        return ("list", *map(identity, value))
    if isinstance(value, dict):
        return frozenset((name, identity(item)) for name, item in value.items())
    return value


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number. True is not one."""
    kind = type(value)
    return kind is float or kind is int or (kind is not bool and isinstance(value, (int, float)))


def _is_integer(value: Any) -> bool:
    return is_number(value) and (isinstance(value, int) or value.is_integer())


_TYPES: dict[str, Check] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, (list, tuple)),
    "string": lambda value: isinstance(value, str),
    "number": is_number,
    "integer": _is_integer,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _const(constant: Any) -> Check:
    key = identity(constant)
    return lambda value: bool(identity(value) == key)


def _enum(allowed: list[Any]) -> Check:
    keys = frozenset(map(identity, allowed))
    return lambda value: identity(value) in keys


def _bound(holds: Callable[[Any, Any], bool]) -> Callable[[Any], Check]:
    return lambda limit: lambda value: is_number(value) and holds(value, limit)


def _length(kind: str, holds: Callable[[int, int], bool]) -> Callable[[Any], Check]:
    is_kind = _TYPES[kind]
    return lambda limit: lambda value: is_kind(value) and holds(len(value), limit)


def _multiple_of(step: Any) -> Check:
    def check(value: Any) -> bool:
        if not is_number(value):
            return False
        if isinstance(value, int) and isinstance(step, int):
            return value % step == 0
        # As decimal numbers: 0.3 is a multiple of 0.1, but the double 0.3 is not a multiple of the double 0.1.
        from fractions import Fraction

        return (Fraction(repr(value)) / Fraction(repr(step))).denominator == 1

    return check


def _unique_items(_: Any) -> Check:
    return lambda value: isinstance(value, (list, tuple)) and len(set(map(identity, value))) == len(value)


def _pattern(pattern: str) -> Check:
    """Return the check of `pattern`, compiled once, by an engine that runs in linear time."""
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    options = RegexOptions(size_limit=_LARGEST_PATTERN)
    try:
        validator = Draft202012Validator({"pattern": pattern}, pattern_options=options)
    except ValidationError as error:
        raise PatternError(f"{pattern!r} is no linear-time regular expression, or too large") from error

    def check(value: Any) -> bool:
        try:
            return isinstance(value, str) and validator.is_valid(value)
        except ValueError:  # half a surrogate pair is not text
            return False

    return check


_CHECKS: dict[str, Callable[[Any], Check]] = {
    "type": _TYPES.__getitem__,
    "const": _const,
    "enum": _enum,
    "minimum": _bound(operator.ge),
    "maximum": _bound(operator.le),
    "exclusiveMinimum": _bound(operator.gt),
    "exclusiveMaximum": _bound(operator.lt),
    "multipleOf": _multiple_of,
    "minLength": _length("string", operator.ge),
    "maxLength": _length("string", operator.le),
    "pattern": _pattern,
    "minItems": _length("array", operator.ge),
    "maxItems": _length("array", operator.le),
    "uniqueItems": _unique_items,
    "minProperties": _length("object", operator.ge),
    "maxProperties": _length("object", operator.le),
    # Not a keyword of JSON Schema: an object whose properties are declared has no others.
    "closed": lambda names: lambda value: isinstance(value, dict) and set(names).issuperset(value),
}
