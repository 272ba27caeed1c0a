"""Schema clauses: their names, the value that decides each, and the effect of missing and broken values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from harness.base.strictjson import DEEPEST, LARGEST
from harness.base.vocabulary import Outcome
from harness.contract.bound import CLOSED, RULE, Bound
from harness.contract.clauses import ClauseResult, clauses_of, empty_place, is_finite, judge_schema, values_at
from harness.contract.keywords import PatternError
from harness.contract.reasons import Reason, ReasonCode


def outcomes(properties: Mapping[str, Any], measurements: Mapping[str, Any]) -> dict[str, ClauseResult]:
    """Every clause of these properties, judged on these measurements."""
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
    """A clause has the name of its property and keyword. Annotations are no clauses."""
    assert expected == [clause.id for clause in clauses_of({"type": "object", "properties": {"x": schema}})]


@pytest.mark.parametrize("value", [1.5, 0, 0.0, 10**300])
def test_a_value_within_its_bounds_passes(value: Any) -> None:
    """The value passes each keyword, and the judgment shows it."""
    expected = {"x.type": (Outcome.PASS, value), "x.minimum": (Outcome.PASS, value)}
    assert expected == {
        name: (outcome.outcome, outcome.value) for name, outcome in outcomes({"x": _NUMBER}, {"x": value}).items()
    }


@pytest.mark.parametrize("value", ["1", None, [], {}, True, [1.0], {"a": 1.0}])
def test_a_value_of_the_wrong_type_fails_every_keyword(value: Any) -> None:
    """A value of the wrong type fails every keyword. In JSON Schema, a text would pass a minimum."""
    expected = {"x.type": Outcome.FAIL, "x.minimum": Outcome.FAIL}
    assert expected == {name: outcome.outcome for name, outcome in outcomes({"x": _NUMBER}, {"x": value}).items()}


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, -(10**400), {"nonfinite": "NaN"}, [1.0, math.nan]]
)
def test_a_number_that_is_not_finite_fails_every_keyword(value: Any) -> None:
    """NaN is neither above nor below a bound, so it is refused before any comparison."""
    found = outcomes({"x": _NUMBER}, {"x": value})
    assert {Reason(ReasonCode.NOT_FINITE, "x")} == {result.reason for result in found.values()}
    assert {Outcome.FAIL} == {clause.outcome for clause in found.values()}


def test_a_broken_number_fails_only_what_looks_at_it() -> None:
    """A NaN among the losses does not change the outcome of the count beside it."""
    found = outcomes({"x": _TENSORS}, {"x": {"count": 1, "losses": [1.0, math.nan]}})
    expected = {"x.count.type": None, "x.losses[].type": Reason(ReasonCode.NOT_FINITE, "x.losses[1]")}
    assert expected == {name: found[name].reason for name in expected}


@pytest.mark.parametrize(
    ("measurements", "clause", "reason"),
    [
        ({}, "x.type", Reason(ReasonCode.MISSING, "x")),
        ({}, "x.losses[].minimum", Reason(ReasonCode.MISSING, "x")),
        ({"x": {"count": 1}}, "x.losses.type", Reason(ReasonCode.MISSING, "x.losses")),
        ({"x": {"count": 1}}, "x.losses[].type", Reason(ReasonCode.MISSING, "x.losses")),
        ({"x": {"count": 1, "losses": "none"}}, "x.losses[].type", Reason(ReasonCode.MISSING, "x.losses")),
        ({"x": {"count": 1, "losses": []}}, "x.losses[].type", Reason(ReasonCode.EMPTY, "x.losses[]")),
    ],
)
def test_what_is_missing_is_not_measured(measurements: dict[str, Any], clause: str, reason: Reason) -> None:
    """A missing value, or an empty list for clauses on its items, makes the clause NOT_MEASURED."""
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
    """A missing value does not satisfy "at most two". An empty list satisfies "no items"."""
    keyword = list(schema)[-1]
    found = outcomes({"x": schema}, {"x": empty})[f"x.{keyword}"]
    assert (found.outcome, found.reason) == (Outcome.NOT_MEASURED, Reason(ReasonCode.EMPTY, "x"))
    if keyword != "uniqueItems":
        assert Outcome.PASS is outcomes({"x": {**schema, keyword: 0}}, {"x": empty})[f"x.{keyword}"].outcome


_NEGATIVE = Reason(ReasonCode.VIOLATED, "x['b'].norm", bound=Bound("minimum", 0))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": {"norm": 1.0}, "b": {"norm": -1.0}}, _NEGATIVE),
        ({"a": {"norm": 1.0}, "b": {"norm": math.nan}}, Reason(ReasonCode.NOT_FINITE, "x['b'].norm")),
        ({"a": {}, "b": {"norm": -1.0}}, _NEGATIVE),
    ],
)
def test_a_value_that_fails_outranks_one_that_is_missing(value: dict[str, Any], reason: Reason) -> None:
    """If one value fails and another is missing, the clause FAILs, in any order."""
    found = outcomes({"x": _MAP}, {"x": value})["x{}.norm.minimum"]
    assert (Outcome.FAIL, reason) == (found.outcome, found.reason)


def test_one_missing_value_among_many_is_not_measured() -> None:
    """The other values do not replace the missing one."""
    found = outcomes({"x": _MAP}, {"x": {"a": {"norm": 1.0}, "b": {}}})["x{}.norm.minimum"]
    expected = (Outcome.NOT_MEASURED, Reason(ReasonCode.MISSING, "x['b'].norm"))
    assert expected == (found.outcome, found.reason)


def test_objects_are_closed() -> None:
    """A property that the contract does not declare fails the object."""
    found = outcomes({"x": _TENSORS}, {"x": {"count": 1, "losses": [1.0], "more": 1}})["x.closed"]
    reason = Reason(ReasonCode.VIOLATED, "x", bound=Bound("closed", ["count", "losses"]))
    assert found == ClauseResult(
        "x.closed", Outcome.FAIL, {"entries": 3}, Bound("closed", ["count", "losses"]), "", reason
    )


@pytest.mark.parametrize(("keyword", "nearest"), [("minimum", 1.0), ("maximum", 3.0), ("type", 2.0)])
def test_the_nearest_of_many_values_is_shown(keyword: str, nearest: float) -> None:
    """If a list passes, the value nearest to the bound is shown."""
    items = {"type": "number", "minimum": 0, "maximum": 9}
    found = outcomes({"x": {"type": "array", "items": items}}, {"x": [1.0, 3.0, 2.0]})
    assert nearest == found[f"x[].{keyword}"].value
    last = {"minimum": 1.0, "maximum": 3.0, "type": 1.0}
    assert (
        last[keyword] == outcomes({"x": {"type": "array", "items": items}}, {"x": [3.0, 1.0]})[f"x[].{keyword}"].value
    )


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
    """A value is finite if every number in it is finite."""
    assert expected == is_finite(value)


def test_what_is_nested_beyond_a_file_is_not_finite() -> None:
    """Nesting that exhausts Python's stack gives an answer, not an exception."""
    deep: Any = 1.0
    for _ in range(100_000):
        deep = [deep]
    assert not is_finite(deep)


def shown(value: Any) -> Any:
    """A measurement as a judgment shows it."""
    return outcomes({"x": {"enum": [1]}}, {"x": value})["x.enum"].value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("é" * 200, "é" * 200),
        ("é" * 201, {"beginning": "é" * 200, "length": 201}),
        ([1.0] * 8, [1.0] * 8),
        ((1.0, 2.0), [1.0, 2.0]),
        ([1.0] * 9, {"items": 9}),
        (["é" * 201, True, None], [{"beginning": "é" * 200, "length": 201}, True, None]),
        ([1.0, [2.0]], {"items": 2}),
        ([1.0, (2.0,)], {"items": 2}),
        ([1.0, {"a": 2.0}], {"items": 2}),
        ([1.0, {"nonfinite": "Infinity"}], [1.0, math.inf]),
        ([], []),
        ({"a": 1, "b": 2}, {"entries": 2}),
        ({"nonfinite": "-Infinity"}, -math.inf),
        (None, None),
        (2, 2),
    ],
)
def test_what_is_long_is_shown_by_its_size(value: Any, expected: Any) -> None:
    """A short value is shown whole, a long one by its size. The observation has all of it."""
    assert repr(expected) == repr(shown(value))


def test_an_outcome_of_every_kind_says_bound_and_unit() -> None:
    """Each kind of outcome shows bound and unit. If several values fail, the worst is shown."""
    schema = {"type": "array", "items": {"type": "number", "maximum": 2, "x-unit": "nat", "x-source": "a paper"}}
    bound = {"id": "x[].maximum", "bound": Bound("maximum", 2), "unit": "nat"}
    expected = {
        (1.0,): (Outcome.PASS, 1.0, None),
        (1.0, 3.0, 4.0, 3.0): (Outcome.FAIL, 4.0, Reason(ReasonCode.VIOLATED, "x[2]", bound=Bound("maximum", 2))),
        (1.0, "3", 4.0): (Outcome.FAIL, "3", Reason(ReasonCode.VIOLATED, "x[1]", bound=Bound("maximum", 2))),
        (): (Outcome.NOT_MEASURED, None, Reason(ReasonCode.EMPTY, "x[]")),
        (1.0, math.inf, 3.0): (Outcome.FAIL, math.inf, Reason(ReasonCode.NOT_FINITE, "x[1]")),
    }
    for value, (outcome, seen, reason) in expected.items():
        result = outcomes({"x": schema}, {"x": value})["x[].maximum"]
        assert result == ClauseResult(**bound, outcome=outcome, value=seen, reason=reason)
    (clause,) = (clause for clause in clauses_of({"properties": {"x": schema}}) if clause.id == "x[].maximum")
    assert (clause.source, clause.unit, clause.argument, clause.keyword) == ("a paper", "nat", 2, "maximum")
    assert clause.path == ("x", "[]")
    (bare,) = (clause for clause in clauses_of({"properties": {"x": {"type": "array"}}}))
    assert (bare.source, bare.unit) == ("", "")


@pytest.mark.parametrize(("keyword", "nearest"), [("exclusiveMinimum", 1.0), ("exclusiveMaximum", 3.0)])
def test_the_nearest_to_an_exclusive_bound_is_shown(keyword: str, nearest: float) -> None:
    """The nearest value is found as for an inclusive bound."""
    schema = {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 9}}
    assert nearest == outcomes({"x": schema}, {"x": [2.0, 3.0, 1.0, 2.0]})[f"x[].{keyword}"].value


@pytest.mark.parametrize("keyword", ["maxItems", "uniqueItems"])
def test_one_empty_list_among_many_is_not_measured(keyword: str) -> None:
    """The clause is NOT_MEASURED, although other lists have items. The reason names the place of the empty list."""
    schema = {"type": "array", "items": {"type": "array", keyword: {"maxItems": 2, "uniqueItems": True}[keyword]}}
    found = outcomes({"x": schema}, {"x": [[1], [], [2]]})[f"x[].{keyword}"]
    assert (found.outcome, found.reason) == (Outcome.NOT_MEASURED, Reason(ReasonCode.EMPTY, "x[1]"))
    assert outcomes({"x": schema}, {"x": [[1], [3], [2]]})[f"x[].{keyword}"].outcome is Outcome.PASS
    found = outcomes({"x": schema}, {"x": [[], [1, 2, 1, 2]]})[f"x[].{keyword}"]
    assert found.outcome is Outcome.FAIL


@pytest.mark.parametrize("value", ["losses", "count", None, 1.0, [], [{"count": 1}], [["count"]], {"counts": 1}, {}])
def test_inside_a_value_of_another_kind_nothing_was_measured(value: Any) -> None:
    """If a value is not the object, list or map that it should be, clauses on values inside it are NOT_MEASURED."""
    nested = {"type": "object", "properties": {"y": _TENSORS, "m": _MAP}}
    for measured in ({"x": value}, {"x": {"y": value, "m": value}}):
        found = outcomes({"x": nested}, measured)
        clauses = ["x.y.count.type", "x.y.losses[].minimum"] + ["x.m{}.norm.type"] * (value != {"counts": 1})
        assert {Outcome.NOT_MEASURED} == {found[name].outcome for name in clauses}


def test_a_map_is_no_list_and_a_list_is_no_map() -> None:
    """Clauses on map values do not read list items, and clauses on items do not read map values."""
    items, values = {"type": "array", "items": _NUMBER}, {"type": "object", "additionalProperties": _NUMBER}
    for schema, value, clause in ((items, {"a": 1.0}, "x[].type"), (values, [1.0], "x{}.type")):
        found = outcomes({"x": schema}, {"x": value})[clause]
        assert (found.outcome, found.reason) == (Outcome.NOT_MEASURED, Reason(ReasonCode.MISSING, "x"))
    found = outcomes({"x": values}, {"x": {"a": 1.0, "b": -1.0}})["x{}.minimum"]
    assert found.reason == Reason(ReasonCode.VIOLATED, "x['b']", bound=Bound("minimum", 0))


def test_the_observation_as_a_whole_is_held_against_its_keywords() -> None:
    """All keywords of the observation itself, except `type`, are clauses too. They ignore a NaN inside."""
    schema = {"type": "object", "minProperties": 2, "properties": {"x": _NUMBER, "y": _NUMBER}}
    clauses = tuple(clauses_of(schema))
    assert [clause.id for clause in clauses][:2] == ["minProperties", "x.type"]
    expected = {
        (math.nan, 1.0): ClauseResult("minProperties", Outcome.PASS, {"entries": 2}, Bound("minProperties", 2)),
        (1.0,): ClauseResult(
            *("minProperties", Outcome.FAIL, {"entries": 1}, Bound("minProperties", 2)),
            reason=Reason(ReasonCode.VIOLATED, "the observation", bound=Bound("minProperties", 2)),
        ),
    }
    for values, result in expected.items():
        measurements = dict(zip("xy", values, strict=False))
        finite = {name: is_finite(value) for name, value in measurements.items()}
        assert result == next(judge_schema(clauses, measurements, finite))


def test_a_pattern_that_is_refused_tells_its_place() -> None:
    """The error has the path of the property, at any depth."""
    schema = {"properties": {"x": {"type": "array", "items": {"type": "string", "pattern": "(?=a)"}}}}
    with pytest.raises(PatternError) as refused:
        list(clauses_of(schema))
    assert refused.value.path == ("x", "[]")


def test_all_values_at_a_path_are_found() -> None:
    """Values after a missing one are found too."""
    measurements = {"x": [{"a": 1}, {}, {"a": 3}], "m": {"p": [1, 2], "q": (3,)}, "n": {"a": {"b": 5}}}
    assert values_at(measurements, ("x", "[]", "a")) == [1, 3]
    assert values_at(measurements, ("m", "{}", "[]")) == [1, 2, 3]
    assert values_at(measurements, ("n", "a", "b")) == [5]
    assert values_at(measurements, ("n", "a", "c")) == []
    assert values_at({"n": {"m": [{"a": 7}]}}, ("n", "m", "[]", "a")) == [7]
    assert values_at(measurements, ("o",)) == []


def test_what_a_double_just_holds_is_finite() -> None:
    """The next larger number is not finite. A value nested deeper than a file may be is not finite either."""
    assert all(map(is_finite, (LARGEST, -LARGEST, [LARGEST], {"a": -LARGEST})))
    assert not any(map(is_finite, (LARGEST + 1, -LARGEST - 1, [LARGEST + 1, "a"], {"a": -LARGEST - 1})))
    for wrap in (lambda inner: {"a": inner}, lambda inner: ["a", inner]):
        nested: Any = "a"
        for _ in range(DEEPEST):
            nested = wrap(nested)
        assert is_finite(nested)
        assert not is_finite(wrap(nested))


@pytest.mark.parametrize(
    ("value", "read", "expected"),
    [
        ([], "", ""),
        ({}, "a", ""),
        ((), "", ""),
        ([[]], "", None),  # nothing reads the items
        ([[]], "a", "[0]"),
        ([{"a": [1]}, {"a": []}], "a", "[1].a"),
        ([{"a": [1], "b": []}], "a", None),  # nothing reads b
        ([{"a": [1], "b": []}], "b", "[0].b"),
        ({"p": {"a": []}}, "a", ".p.a"),  # p is none of the names, so it is a key like any
        ({"p": [1], "q": []}, "a", ".q"),
        ({"a": [1], "q": []}, "a", None),
        ([1.0, "", None], "a", None),
        ("", "a", None),
        (0, "a", None),
    ],
)
def test_where_a_value_is_empty(value: Any, read: str, expected: str | None) -> None:
    """A list or map can be empty, and so can one inside it. The place follows the name of the value."""
    assert expected == empty_place(value, frozenset(read))


def test_a_rule_stands_for_itself() -> None:
    assert [str(Bound(RULE, "a < b")), str(Bound("minimum", 0.5)), str(Bound(CLOSED, ["a"]))] == [
        "a < b",
        "minimum 0.5",
        'closed ["a"]',
    ]
