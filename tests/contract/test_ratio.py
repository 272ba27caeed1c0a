"""The ratio of a measurement to its threshold."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.device import Device
from harness.base.vocabulary import Outcome
from harness.contract.clauses import Clause
from harness.contract.ratio import has_ratio, ratio
from harness.judging.judge import judge
from tests.contracts import contract_of, document, healthy, observe

CPU = Device("cpu", "a CPU")


def a_clause(observed: dict[str, Any] | None = None, rule: str = "") -> Clause:
    """The clause under test: the last keyword of a property `x`, or a rule over it and `y`."""
    properties = {
        **document()["observation"]["properties"],
        "x": observed or {"type": "number"},
        "y": {"type": "number"},
    }
    rules = [{"id": "the-rule", "rule": rule, "message": "no"}] if rule else []
    contract = contract_of(
        document(
            observation={"type": "object", "properties": properties},
            rules=rules,
            mutants=[{**document()["mutants"][0], "violates": ["returned.minimum"]}],
        )
    )
    return contract.rules[0] if rule else [clause for clause in contract.clauses if clause.id.startswith("x")][-1]


def of(clause: Clause, **measurements: Any) -> float | None:
    """The ratio of these measurements."""
    return ratio(clause, measurements, {"steps": 3}, CPU)


@pytest.mark.parametrize(
    ("keywords", "value", "expected"),
    [
        ({"maximum": 1e-4}, 4e-3, 40.0),
        ({"maximum": 1e-4}, 5e-5, 0.5),
        ({"maximum": 1e-4}, -1.0, 0.0),
        ({"exclusiveMaximum": 2.0}, 2.0, 1.0),
        ({"minimum": 1e-3}, 1e-4, 10.0),
        ({"minimum": 1e-3}, 0.0, math.inf),
        ({"minimum": 1e-3}, -1.0, math.inf),
        ({"maximum": 1.0}, math.nan, math.inf),
        ({"maximum": 1.0}, 10**400, math.inf),
        ({"maximum": 0}, 5.0, None),
        ({"minimum": -1.0}, -5.0, None),
        ({"multipleOf": 2.0}, 5.0, None),
    ],
)
def test_bounds(keywords: dict[str, Any], value: float, expected: float | None) -> None:
    """A value is divided by an upper bound, and a lower bound by the value.

    For a value that is not finite, the ratio is infinite.
    """
    clause = a_clause({"type": "number", **keywords})
    assert has_ratio(clause) is (expected is not None)
    assert of(clause, x=value) == (None if expected is None else pytest.approx(expected))


def test_the_worst_item_counts() -> None:
    """In a list, the item farthest beyond the bound counts. An empty list has no ratio."""
    clause = a_clause({"type": "array", "minItems": 1, "items": {"type": "number", "maximum": 2.0}})
    assert of(clause, x=[1.0, 6.0, 2.0]) == 3.0
    assert of(clause, x=[]) is None
    assert of(clause) is None


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("self.x < self.y", 3.0),
        ("self.x <= 0.5 * self.y", 6.0),
        ("self.y > self.x", 3.0),
        ("self.y >= self.x", 3.0),
        ("self.x > 0.0 && self.x < 1.5 * (self.y + 1.0)", 1.0),
        ("self.x < parameters.steps", 1.0),
        ("self.x <= -1.0 * self.y", math.inf),
        ("self.x < {'a<b': 0.5, 'c': 1.0}['a<b'] * self.y  // a < b", 6.0),
        ("self.x < (self.y == 1.0 ? 2.0 : 4.0)", 1.5),
    ],
)
def test_rules_that_compare(rule: str, expected: float) -> None:
    """The ratio is the factor by which the side that must be smaller exceeds the other. The worst comparison counts."""
    clause = a_clause(rule=rule)
    assert has_ratio(clause)
    assert of(clause, x=3.0, y=1.0) == pytest.approx(expected)
    assert of(clause, x=3.0) is None or "self.y" not in rule
    assert of(clause, x=math.nan, y=1.0) == math.inf


@pytest.mark.parametrize(
    "rule",
    [
        "self.x == self.y",
        "self.x < self.y || self.y > 2.0",
        "!(self.x < self.y)",
        "self.x > 1.0 ? true : false",
    ],
)
def test_rules_that_are_no_conjunction_of_comparisons(rule: str) -> None:
    """Such rules have no threshold, so they have no ratio."""
    assert not has_ratio(a_clause(rule=rule))


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.sampled_from(["minimum", "maximum"]))
def test_above_one_is_violated_and_below_one_holds(value: float, bound: float, keyword: str) -> None:
    """The ratio agrees with the outcome of the clause."""
    properties = {**document()["observation"]["properties"], "x": {"type": "number", keyword: bound}}
    contract = contract_of(document(observation={"type": "object", "properties": properties}))
    (result,) = [clause for clause in judge(contract, observe(healthy(x=value))).clauses if clause.id == f"x.{keyword}"]
    (clause,) = [clause for clause in contract.clauses if clause.id == f"x.{keyword}"]
    found = of(clause, x=value)
    assert found is not None
    assert result.outcome is Outcome.PASS or found >= 1.0
    assert result.outcome is Outcome.FAIL or found <= 1.0


@pytest.mark.parametrize(
    ("keywords", "value", "expected"),
    [
        ({"exclusiveMinimum": 2.0}, 1.0, 2.0),
        ({"maximum": 2}, 3, 1.5),
        ({"minimum": 2}, 4, 0.5),
        ({"minimum": 2.0}, math.nan, math.inf),
        ({"minimum": 2.0}, math.inf, math.inf),
        ({"maximum": 2.0}, {"nonfinite": "NaN"}, math.inf),
        ({"maximum": 2.0}, "broken", None),
        ({"maximum": 2.0}, True, None),
        ({"maximum": 2.0}, None, None),
        ({"maximum": 2.0}, [4.0], None),
    ],
)
def test_only_numbers_have_a_ratio(keywords: dict[str, Any], value: Any, expected: float | None) -> None:
    """Integers and numbers that are not finite have a ratio. Clauses on other values have none."""
    assert of(a_clause({"type": "number", **keywords}), x=value) == expected


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [
        (0.0, 0.0, 1.0),
        (-1.0, -1.0, 1.0),
        (-1.0, 0.0, 0.0),
        (-2.0, -1.0, 0.0),
        (1e-9, 0.0, math.inf),
        (-1.0, -2.0, math.inf),
        (-1.0, 2.0, 0.0),
        (1.0, 0.5, 2.0),
    ],
)
def test_a_bound_that_is_not_positive_is_held_met_or_broken(small: float, large: float, expected: float) -> None:
    """Such a bound has no factor.

    A value on it has the ratio 1, one that holds has 0, and one beyond it has infinity.
    """
    assert of(a_clause(rule="self.x <= self.y"), x=small, y=large) == expected


def test_a_clause_of_no_schema_and_no_rule_has_no_ratio() -> None:
    """The clause has no ratio, whatever its bound says."""
    assert not has_ratio(Clause("subject.completes", "a < b"))
    assert ratio(Clause("subject.completes", "a < b"), {}, {}, CPU) is None


def test_a_comparison_that_is_looked_up_has_no_ratio() -> None:
    """A comparison that asks whether a value exists has no ratio."""
    assert not has_ratio(a_clause(rule="self.x < self.y in [true]"))


def test_what_cannot_be_compared_has_no_ratio() -> None:
    """A missing measurement or parameter, a missing one beside a broken one, and text have no ratio."""
    against = a_clause(rule="self.x < parameters.steps")
    assert ratio(against, {"x": 1.0, "steps": 4.0}, {"steps": 2.0}, CPU) == 0.5
    assert ratio(against, {"x": 1.0, "steps": 4.0}, {}, CPU) is None
    between = a_clause(rule="self.x < self.y")
    assert of(between, x=math.nan) is None
    assert of(between, x="a", y="b") is None
    assert of(between, x=1.0, y="b") is None
    assert of(between, x="a", y=1.0) is None
    assert of(between, x=True, y=1.0) is None
    assert of(a_clause(rule="self.x[1] < self.y"), x=[1.0], y=1.0) is None
    assert of(a_clause(rule="self.x[1] < self.y"), x=[1.0, 3.0], y=1.0) == 3.0
