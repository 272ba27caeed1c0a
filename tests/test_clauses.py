"""Schema clauses: what each is called, which value decides it, and what missing and broken values do to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from harness.contract.clauses import ClauseResult, clauses_of, is_finite, judge_schema
from harness.verdict import Outcome


def outcomes(properties: Mapping[str, Any], measurements: Mapping[str, Any]) -> dict[str, ClauseResult]:
    """Every clause of these properties, held against these measurements."""
    clauses = tuple(clauses_of({"type": "object", "properties": properties}))
    finite = {name: is_finite(value) for name, value in measurements.items()}
    return {result.id: result for result in judge_schema(clauses, measurements, finite)}


_NUMBER = {"type": "number", "minimum": 0}
_TENSORS = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "losses": {"type": "array", "items": _NUMBER, "minItems": 1}},
}
_MAP = {"type": "object", "additionalProperties": {"type": "object", "properties": {"norm": _NUMBER}}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "number", "maximum": 1, "x-unit": "nat", "x-source": "s", "title": "t"}, ["x.type", "x.maximum"]),
        ({"const": 50, "examples": [50], "description": "d"}, ["x.const"]),
        ({"type": "array", "minItems": 1, "items": _NUMBER}, ["x.type", "x.minItems", "x[].type", "x[].minimum"]),
        (
            _TENSORS,
            [
                "x.type",
                "x.closed",
                "x.count.type",
                "x.losses.type",
                "x.losses.minItems",
                "x.losses[].type",
                "x.losses[].minimum",
            ],
        ),
        (_MAP, ["x.type", "x{}.type", "x{}.closed", "x{}.norm.type", "x{}.norm.minimum"]),
    ],
)
def test_names(schema: dict[str, Any], expected: list[str]) -> None:
    """A clause is called by its property and its keyword; annotations are no clauses."""
    assert expected == [clause.id for clause in clauses_of({"type": "object", "properties": {"x": schema}})]


@pytest.mark.parametrize("value", [1.5, 0, 0.0, 10**300])
def test_a_value_within_its_bounds_passes(value: Any) -> None:
    """A value that satisfies its keywords passes each of them, and is shown."""
    expected = {"x.type": (Outcome.PASS, value), "x.minimum": (Outcome.PASS, value)}
    assert expected == {name: (one.outcome, one.value) for name, one in outcomes({"x": _NUMBER}, {"x": value}).items()}


@pytest.mark.parametrize("value", ["1", None, [], {}, True, [1.0], {"a": 1.0}])
def test_a_value_of_the_wrong_type_fails_every_keyword(value: Any) -> None:
    """A minimum holds for no text: JSON Schema would let it pass."""
    expected = {"x.type": Outcome.FAIL, "x.minimum": Outcome.FAIL}
    assert expected == {name: one.outcome for name, one in outcomes({"x": _NUMBER}, {"x": value}).items()}


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, -(10**400), {"nonfinite": "NaN"}, [1.0, math.nan]]
)
def test_a_number_that_is_not_finite_fails_every_keyword(value: Any) -> None:
    """NaN is neither above nor below a bound, so it must be refused before it is compared."""
    found = outcomes({"x": _NUMBER}, {"x": value})
    assert {"x is not finite"} == {one.reason for one in found.values()}
    assert {Outcome.FAIL} == {one.outcome for one in found.values()}


def test_a_broken_number_fails_only_what_looks_at_it() -> None:
    """A NaN among the losses is no fault of the count beside it."""
    found = outcomes({"x": _TENSORS}, {"x": {"count": 1, "losses": [1.0, math.nan]}})
    expected = {"x.count.type": "", "x.losses[].type": "x.losses[1] is not finite"}
    assert expected == {name: found[name].reason for name in expected}


@pytest.mark.parametrize(
    ("measurements", "clause", "reason"),
    [
        ({}, "x.type", "x was not measured"),
        ({}, "x.losses[].minimum", "x was not measured"),
        ({"x": {"count": 1}}, "x.losses.type", "x.losses was not measured"),
        ({"x": {"count": 1}}, "x.losses[].type", "x.losses was not measured"),
        ({"x": {"count": 1, "losses": "none"}}, "x.losses[].type", "x.losses was not measured"),
        ({"x": {"count": 1, "losses": []}}, "x.losses[].type", "x.losses[] is empty: nothing was measured"),
    ],
)
def test_what_is_missing_is_not_measured(measurements: dict[str, Any], clause: str, reason: str) -> None:
    """A missing value, and an empty list for the clauses of its items, leave a clause undecided."""
    found = outcomes({"x": _TENSORS}, measurements)[clause]
    assert (Outcome.NOT_MEASURED, reason) == (found.outcome, found.reason)


@pytest.mark.parametrize(
    ("schema", "empty"),
    [
        ({"type": "array", "maxItems": 2}, []),
        ({"type": "array", "uniqueItems": True}, []),
        ({"type": "object", "maxProperties": 2}, {}),
    ],
)
def test_what_nothing_satisfies_is_not_measured(schema: dict[str, Any], empty: Any) -> None:
    """At most two of nothing is no measurement; that there is nothing where nothing must be is one."""
    keyword = list(schema)[-1]
    found = outcomes({"x": schema}, {"x": empty})[f"x.{keyword}"]
    assert (found.outcome, found.reason) == (Outcome.NOT_MEASURED, "x is empty: nothing was measured")
    if keyword != "uniqueItems":
        assert Outcome.PASS is outcomes({"x": {**schema, keyword: 0}}, {"x": empty})[f"x.{keyword}"].outcome


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": {"norm": 1.0}, "b": {"norm": -1.0}}, "x['b'].norm violates minimum 0"),
        ({"a": {"norm": 1.0}, "b": {"norm": math.nan}}, "x['b'].norm is not finite"),
        ({"a": {}, "b": {"norm": -1.0}}, "x['b'].norm violates minimum 0"),
    ],
)
def test_a_value_that_fails_outranks_one_that_is_missing(value: dict[str, Any], reason: str) -> None:
    """Among many values the one that violates the clause decides, wherever it stands."""
    found = outcomes({"x": _MAP}, {"x": value})["x{}.norm.minimum"]
    assert (Outcome.FAIL, reason) == (found.outcome, found.reason)


def test_one_missing_value_among_many_is_not_measured() -> None:
    """What was measured of the others does not speak for it."""
    found = outcomes({"x": _MAP}, {"x": {"a": {"norm": 1.0}, "b": {}}})["x{}.norm.minimum"]
    expected = (Outcome.NOT_MEASURED, "x['b'].norm was not measured")
    assert expected == (found.outcome, found.reason)


def test_objects_are_closed() -> None:
    """A property that the contract does not declare fails the object."""
    found = outcomes({"x": _TENSORS}, {"x": {"count": 1, "losses": [1.0], "more": 1}})["x.closed"]
    expected = (Outcome.FAIL, "x has undeclared properties")
    assert expected == (found.outcome, found.reason)


@pytest.mark.parametrize(("keyword", "nearest"), [("minimum", 1.0), ("maximum", 3.0), ("type", 2.0)])
def test_the_nearest_of_many_values_is_shown(keyword: str, nearest: float) -> None:
    """Of a list that passes, the value that came nearest to the bound is shown."""
    items = {"type": "number", "minimum": 0, "maximum": 9}
    found = outcomes({"x": {"type": "array", "items": items}}, {"x": [1.0, 3.0, 2.0]})
    assert nearest == found[f"x[].{keyword}"].value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1e308, 1e308], True),  # whose sum is not finite
        ([math.inf, -math.inf], False),
        ([10**400, -(10**400)], False),  # whose sum is zero
        ([10**400, -(10**400), 1.0], False),
        ([1, True, 2.5], True),
        (["a", math.nan], False),
        ({"a": [{"b": math.inf}]}, False),
        ({"nonfinite": "a word"}, True),
        ("text", True),
    ],
)
def test_finiteness(value: Any, expected: bool) -> None:
    """A value is finite when every number in it is, whatever their sum."""
    assert expected == is_finite(value)


def test_what_is_nested_beyond_a_file_is_not_finite() -> None:
    """Nesting that exhausts Python's stack is an answer, not an exception."""
    deep: Any = 1.0
    for _ in range(100_000):
        deep = [deep]
    assert not is_finite(deep)
