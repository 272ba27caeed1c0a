"""For values of their type, the keywords agree with jsonschema. They refuse every other type."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from harness.contract.clauses import is_finite
from harness.contract.keywords import PatternError, check_of
from tests.strategies import json_values

_NUMBER, _SIZE = st.integers(-5, 5) | st.floats(-5, 5), st.integers(0, 4)
_ARGUMENTS: dict[str, tuple[st.SearchStrategy[Any], tuple[type, ...]]] = {
    "type": (
        st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"]),
        (dict, list, str, int, float, bool, type(None)),
    ),
    "const": (json_values, (dict, list, str, int, float, bool, type(None))),
    "enum": (st.lists(json_values, min_size=1, max_size=4), (dict, list, str, int, float, bool, type(None))),
    "minimum": (_NUMBER, (int, float)),
    "maximum": (_NUMBER, (int, float)),
    "exclusiveMinimum": (_NUMBER, (int, float)),
    "exclusiveMaximum": (_NUMBER, (int, float)),
    "multipleOf": (st.integers(1, 5), (int,)),
    "minLength": (_SIZE, (str,)),
    "maxLength": (_SIZE, (str,)),
    "pattern": (st.sampled_from(["^a", "[0-9]+", "a|b", ".{3}"]), (str,)),
    "minItems": (_SIZE, (list,)),
    "maxItems": (_SIZE, (list,)),
    "uniqueItems": (st.just(True), (list,)),
    "minProperties": (_SIZE, (dict,)),
    "maxProperties": (_SIZE, (dict,)),
}
_BOTH = st.sampled_from(sorted(_ARGUMENTS)).flatmap(lambda name: st.tuples(st.just(name), _ARGUMENTS[name][0]))


@given(_BOTH, json_values.filter(is_finite))
def test_agrees_with_jsonschema(keyword: tuple[str, Any], value: Any) -> None:
    """For a value of the keyword's type, the answer is JSON Schema's. For other values it is no."""
    name, argument = keyword
    assume(not (name == "multipleOf" and isinstance(value, float)))  # jsonschema divides doubles; see the next test
    spoken_of = type(value) in _ARGUMENTS[name][1]
    expected = spoken_of and Draft202012Validator({name: argument}).is_valid(value)
    assert expected == check_of(name, argument)(value)


_SMALL: tuple[Any, ...] = (
    *(None, False, True, -1, 0, 1, 2, -1.0, 0.0, 1.0, 1.5, "", "1", "a", "ab", "list", "é"),
    *([], [0], [1], [1.0], [True], [None], ["a"], [[]], [[1]], [1, 2], [2, 1], [1, True], [1, 1.0], ["list", 1]),
    *({}, {"a": 1}, {"a": 1.0}, {"a": True}, {"b": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": [1]}, {"a": {}}),
)
"""The comparison has values that Python takes for equal, and values on a bound, next to each other."""
_STEPS = (-1, 0, 1, 2, -1.0, 0.0, 1.0, 1.5)
_SMALL_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "type": ("object", "array", "string", "number", "integer", "boolean", "null"),
    "const": _SMALL,
    "enum": ([None, 1], [True], [[1], {"a": 1}], ["a", []]),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _STEPS),
    "multipleOf": (1, 2, 1.0, 0.5),
    "pattern": ("^a$", "b", "[0-9]", "^.$"),
    "uniqueItems": (True,),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), (0, 1, 2)),
}


@pytest.mark.parametrize("keyword", sorted(_ARGUMENTS))
def test_agrees_with_jsonschema_on_every_small_value(keyword: str) -> None:
    """The comparison is exhaustive: each keyword at its bounds, and true beside 1 at every depth."""
    spoken_of = {*_ARGUMENTS[keyword][1], *((float,) if keyword == "multipleOf" else ())}
    for argument in _SMALL_ARGUMENTS[keyword]:
        check, validator = check_of(keyword, argument), Draft202012Validator({keyword: argument})
        found = [value for value in _SMALL if check(value)]
        expected = [value for value in _SMALL if type(value) in spoken_of and validator.is_valid(value)]
        assert list(map(repr, found)) == list(map(repr, expected)), argument


def test_what_a_trial_holds_as_a_tuple_is_a_list() -> None:
    """Measurements are also judged in the trial's process, before a file turns tuples into lists."""
    for keyword, argument in (("type", "array"), ("const", [1, 2]), ("minItems", 2), ("uniqueItems", True)):
        assert check_of(keyword, argument)((1, 2))
    assert not check_of("uniqueItems", True)((1, 1))


def test_a_number_may_be_of_a_kind_of_its_own() -> None:
    """Enumerations and numpy have their own types of numbers. A truth value is not a number."""
    whole, broken = IntEnum("Count", ["ONE"]), type("Seconds", (float,), {})
    for value in (whole(1), broken(1.0)):
        assert all(check_of(keyword, 1)(value) for keyword in ("minimum", "maximum", "multipleOf", "const"))
        assert check_of("type", "number")(value)
        assert check_of("type", "integer")(value)
    assert not check_of("type", "number")(True)
    assert not check_of("minimum", 0)(True)


def test_a_closed_object_has_no_other_names() -> None:
    """The object may have fewer names. A value of another type is not a closed object."""
    closed = check_of("closed", ["a", "b"])
    assert [closed(value) for value in ({}, {"a": 1}, {"a": 1, "b": 1}, {"c": 1}, {"a": 1, "c": 1}, ["a"], "a")] == [
        *(True, True, True, False, False, False, False)
    ]


@pytest.mark.parametrize(
    ("value", "step", "expected"),
    [(0.3, 0.1, True), (0.35, 0.1, False), (1e300, 0.5, True), (0.0, 1, True), (1, 0.1, True), (1e23, 10, True)],
)
def test_multiples_are_decimal(value: float, step: float, expected: bool) -> None:
    """A multiple counts by the decimal digits as written, not by the nearest doubles."""
    assert expected == check_of("multipleOf", step)(value)


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "(?<!a)b", "(", "((a{100}){100}){100}", "[^a]{500}"])
def test_patterns_that_are_not_linear_or_too_large_are_refused(pattern: str) -> None:
    """The check of every other pattern takes time that is linear in the text."""
    with pytest.raises(PatternError):
        check_of("pattern", pattern)


def test_a_runaway_pattern_runs_in_linear_time() -> None:
    """A backtracking engine would take years for it."""
    assert not check_of("pattern", "^(a+)+$")("a" * 5000 + "!")


def test_half_a_surrogate_pair_matches_nothing() -> None:
    """Such text satisfies no pattern and raises nothing."""
    assert not check_of("pattern", ".*")("\udc80")
