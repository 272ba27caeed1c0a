"""CEL rules: which are refused, and that only a plain `true` passes."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.device import Device
from harness.base.vocabulary import Outcome
from harness.contract.clauses import ClauseResult, is_finite
from harness.contract.expression import parse
from harness.contract.reasons import Reason, ReasonCode
from harness.contract.rules import RuleError, Scope, compile_rule, literals


def judged(rule: str, parameters: dict[str, Any] | None = None, **measurements: Any) -> ClauseResult:
    """One rule, judged on these measurements."""
    compiled = compile_rule("the-rule", rule, "the message")
    finite = {name: is_finite(value) for name, value in measurements.items()}
    return compiled.judge(Scope((compiled,), measurements, parameters or {}, Device("cpu", "a CPU"), finite))


@pytest.mark.parametrize(
    "rule",
    [
        "self.a <",
        "self.a < 1e400",
        "self.a < abs(self.b)",
        "_abs(self.a) < 1.0",
        "self.a.isNaN()",
        "self.a < limit",
        "self.a < math.pi",
        "self['a'] < 1.0",
        "self == self",
        "self.size() > 0 && self.a",
        "[self.a].all(self, self < 1.0)",
        "parameters.steps == 50.0",
        "'self.a' == \"self.b\"",
        "true // self.a",
        "self.a.all(x, self.b.all(y, self.c.all(z, x < y)))",
        "self.a.all(x)",
        "self.a.all()",
        "self.a.all(1.0, true)",
        "all(self.a, x, x < 1.0)",
    ],
)
def test_refusals(rule: str, snapshot: Any) -> None:
    """A rule that cannot be evaluated, or reads no measurement, does not compile. A snapshot has the messages."""
    with pytest.raises(RuleError) as refused:
        compile_rule("the-rule", rule, "the message")
    assert str(refused.value) == snapshot


@pytest.mark.parametrize(
    ("rule", "measurements", "expected"),
    [
        ("self.a < self.b", {"a": 1.0, "b": 2}, Outcome.PASS),
        ("self.a < self.b", {"a": 2, "b": 2.0}, Outcome.FAIL),
        ("1.05 * self.a == self.b", {"a": 100, "b": 105.0}, Outcome.PASS),
        ("self.a == double(size(self.b))", {"a": 2, "b": [1.0, 2.0]}, Outcome.PASS),
        ("self.b.all(x, x < self.a)", {"a": 3, "b": [1, 2]}, Outcome.PASS),
        ("self.b.all(x, (x < self.a)) && self.b.exists(y, y == 1.0)", {"a": 3, "b": [1, 2]}, Outcome.PASS),
        ("self.b.exists(x, x > self.a)", {"a": 3, "b": [1, 2]}, Outcome.FAIL),
        ("has(self.a.b) && self.a.b > 0.0", {"a": {"b": 1}}, Outcome.PASS),
        ("self.a.matches('^[0-9]+$')", {"a": "12"}, Outcome.PASS),
        ("self.a in ['x', 'y'] // either", {"a": "x"}, Outcome.PASS),
        ("device.type == 'cpu' && self.a", {"a": True}, Outcome.PASS),
        ("self.a.startsWith('x') && self.a.endsWith('z') && self.a.contains('é')", {"a": "xéz"}, Outcome.PASS),
        ("self.a == int('3') && string(self.a) == '3'", {"a": 3}, Outcome.PASS),
        ("self.a[0] + self.b.c == 3.5", {"a": [1, 2], "b": {"c": 2.5}}, Outcome.PASS),
        ("self.a.all(x, self.b.exists(y, x == y))", {"a": [1], "b": [2, 1]}, Outcome.PASS),
        ("self.a == -self.b", {"a": 2**53, "b": -(2**53)}, Outcome.PASS),
        ("self.a == null", {"a": None}, Outcome.PASS),
    ],
)
def test_outcomes(rule: str, measurements: dict[str, Any], expected: Outcome) -> None:
    """A rule passes if it is true. Integers and doubles are equal."""
    found = judged(rule, **measurements)
    assert expected is found.outcome
    assert found.reason == (Reason(ReasonCode.VIOLATED, text="the message") if expected is Outcome.FAIL else None)


@pytest.mark.parametrize(
    ("rule", "measurements", "reason"),
    [
        ("self.a < 1.0 || self.b < 1.0", {"a": 0.0, "b": math.nan}, Reason(ReasonCode.NOT_FINITE, "self.b")),
        ("self.a < 1.0 || self.b < 1.0", {"a": 0.0, "b": 10**400}, Reason(ReasonCode.NOT_FINITE, "self.b")),
        ("self.a.b < 1.0", {"a": {"b": 0.0, "c": [math.inf]}}, Reason(ReasonCode.NOT_FINITE, "self.a")),
        ("2 * self.a > 0.0", {"a": 1.0}, Reason(ReasonCode.CANNOT_BE_EVALUATED)),
        ("self.a / self.a < 2.0", {"a": 0.0}, Reason(ReasonCode.CANNOT_BE_EVALUATED)),
        ("self.a > 1.0", {"a": "text"}, Reason(ReasonCode.CANNOT_BE_EVALUATED)),
        ("self.a[3] > 1.0", {"a": [1.0]}, Reason(ReasonCode.CANNOT_BE_EVALUATED)),
        ("self.a.matches('(?=a)')", {"a": "a"}, Reason(ReasonCode.CANNOT_BE_EVALUATED)),
        ("self.a + 1.0", {"a": 1.0}, Reason(ReasonCode.NOT_BOOLEAN, text="2.0")),
        ("self.a", {"a": 1}, Reason(ReasonCode.NOT_BOOLEAN, text="1.0")),
        ("self.a == self.b", {"a": 2**53, "b": 2**53 + 1}, Reason(ReasonCode.INTEGER_TOO_LARGE, "self.b")),
        ("self.a == 0.0 || true", {"a": -(2**53) - 1}, Reason(ReasonCode.INTEGER_TOO_LARGE, "self.a")),
        ("size(self.a) == 2", {"a": [1.0, 2**53 + 1]}, Reason(ReasonCode.INTEGER_TOO_LARGE, "self.a")),
        ("size(self.a) == 1", {"a": {"k": [2**53 + 1]}}, Reason(ReasonCode.INTEGER_TOO_LARGE, "self.a")),
        ("self.a == 'x' || true", {"a": "\udc80"}, Reason(ReasonCode.NO_TEXT, "self.a")),
        ("self.a == 'x' || true", {"a": "é\ud800"}, Reason(ReasonCode.NO_TEXT, "self.a")),
        ("size(self.a) == 1", {"a": ["é\udfff"]}, Reason(ReasonCode.NO_TEXT, "self.a")),
        ("size(self.a) == 1", {"a": {"\udc80": 1.0}}, Reason(ReasonCode.NO_TEXT, "self.a")),
        ("self.a < self.b", {"a": 2.0, "b": 1.0}, Reason(ReasonCode.VIOLATED, text="the message")),
    ],
)
def test_failures(rule: str, measurements: dict[str, Any], reason: Reason) -> None:
    """A broken value fails the rule, even if the rest of the rule would be true without it."""
    found = judged(rule, **measurements)
    assert (Outcome.FAIL, reason.code, reason.place) == (found.outcome, found.reason.code, found.reason.place)
    assert not reason.text or reason.text == found.reason.text


@pytest.mark.parametrize(
    ("rule", "measurements", "reason"),
    [
        ("self.a < 1.0 || self.b < 1.0", {"a": 0.0}, Reason(ReasonCode.MISSING, "self.b")),
        ("self.a.b < 1.0", {"a": {}}, Reason(ReasonCode.MISSING, "b")),
        ("self.a == parameters.steps", {"a": 1.0}, Reason(ReasonCode.MISSING, "parameters.steps")),
    ],
)
def test_what_is_missing_is_not_measured(rule: str, measurements: dict[str, Any], reason: Reason) -> None:
    """The rule is undecided, even if the rest of the rule would be true without it."""
    found = judged(rule, **measurements)
    assert (Outcome.NOT_MEASURED, reason) == (found.outcome, found.reason)


@pytest.mark.parametrize(
    ("rule", "measurements", "place"),
    [
        ("self.a.all(x, x < 1.0)", {"a": []}, "self.a"),
        ("!self.a.exists(x, x > 1.0)", {"a": []}, "self.a"),
        ("size(self.a.filter(x, x > 1.0)) == 0", {"a": []}, "self.a"),
        ("!(1.0 in self.a)", {"a": []}, "self.a"),
        ("size(self.a) < 5", {"a": []}, "self.a"),
        ("self.a == self.b", {"a": [], "b": []}, "self.a"),
        ("self.b == 0.0 || self.a.all(x, x < 1.0)", {"a": [], "b": 0}, "self.a"),
        ("self.a.all(name, self.a[name] < 1.0)", {"a": {}}, "self.a"),
        ("self.a.b.all(x, x < 1.0)", {"a": {"b": []}}, "self.a.b"),
        ("self.a.all(row, row.all(x, x < 1.0))", {"a": [[0.5], []]}, "self.a[1]"),
        ("self.a.all(row, row.times.all(x, x < 1.0))", {"a": [{"times": []}]}, "self.a[0].times"),
        ("self.a.all(name, self.a[name].all(x, x < 1.0))", {"a": {"k": []}}, "self.a.k"),
    ],
)
def test_of_nothing_nothing_is_true(rule: str, measurements: dict[str, Any], place: str) -> None:
    """A rule that is true only because a list is empty is NOT_MEASURED, and the reason names the list."""
    found = judged(rule, **measurements)
    assert (Outcome.NOT_MEASURED, Reason(ReasonCode.EMPTY, place)) == (found.outcome, found.reason)


def test_an_empty_list_saves_no_rule_that_is_violated() -> None:
    """A failure outranks a missing value, as in the clauses of a schema."""
    assert Outcome.FAIL is judged("self.a.exists(x, x > 1.0)", a=[]).outcome
    assert Outcome.FAIL is judged("self.b < 1.0 && self.a.all(x, x > 1.0)", a=[], b=2.0).outcome


def test_an_empty_parameter_is_nothing_to_hold_against() -> None:
    """An empty parameter beside an empty measurement does not count as agreement."""
    found = judged("self.a == double(size(parameters.targets))", {"targets": []}, a=0)
    assert (found.outcome, found.reason) == (Outcome.NOT_MEASURED, Reason(ReasonCode.EMPTY, "parameters.targets"))


def test_what_a_rule_does_not_read_may_be_empty() -> None:
    """A list that the rule does not read may be empty, for example if the schema requires that."""
    rows = [{"time": 0.5, "wrong": []}]
    assert Outcome.PASS is judged("self.a.all(row, row.time < 1.0)", a=rows).outcome
    assert Outcome.PASS is judged("double(size(self.a)) == self.b", a=[[]], b=1).outcome


_SHAPES = st.recursive(
    st.floats(0, 0.5) | st.just([]), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6
).filter(lambda value: isinstance(value, list))


@given(_SHAPES)
def test_no_rule_passes_on_a_list_without_numbers(value: list[Any]) -> None:
    """A rule over lists, and lists of lists, passes only if each has a number."""
    flat = judged("self.a.all(x, x < 1.0)", a=value)
    deep = judged("self.a.all(row, row.all(x, x < 1.0))", a=value)
    assert (flat.outcome is Outcome.PASS) == (bool(value) and all(isinstance(item, float) for item in value))
    rows = bool(value) and all(isinstance(row, list) and row for row in value)
    assert (deep.outcome is Outcome.PASS) == (rows and all(isinstance(item, float) for row in value for item in row))


def test_the_values_read_are_shown() -> None:
    """The result shows the compared values, and lists while they are short."""
    expected = {"a": 1, "b.c": 2.0, "d": [1.0]}
    assert expected == judged("self.a < self.b.c && size(self.d) > 0", a=1, b={"c": 2.0}, d=[1.0]).value
    assert judged("self.a < self.b.c", a=1, b={}).value == {"a": 1}


def test_the_value_that_keeps_a_rule_from_being_read_is_shown() -> None:
    """If a value prevents the evaluation, it is shown. Otherwise none is shown."""
    assert judged("self.a < self.b", a=1.0, b=math.inf).value == {"b": math.inf}
    assert judged("self.a < self.b", a=1.0).value is None


def test_what_a_rule_reads_is_told_step_by_step() -> None:
    """The paths that a rule reads have no method as their last step. Equal first steps occur once."""
    rule = compile_rule(
        "the-rule", "self.a.b.c.contains('x') && self.a.d == device.name && self.e > 1.0", "the message"
    )
    assert rule.names == {"self": (("a", "b", "c"), ("a", "d"), ("e",)), "parameters": (), "device": (("name",),)}
    assert rule.reads == (("self", "a"), ("self", "e"), ("device", "name"))
    assert rule.measurements == {"a", "e"}


def test_a_comment_hides_no_measurement() -> None:
    """A quote in a comment does not make a string of the code that follows."""
    rule = "self.a < 1.0 // it's\n && self.b < 1.0 // don't"
    expected = (("a",), ("b",))
    assert expected == compile_rule("the-rule", rule, "the message").names["self"]


@pytest.mark.parametrize(
    ("rule", "numbers"),
    [
        ("self.a < 1.05 * self.b2 + 1e-3", [1.05, 1e-3]),
        ("self.a[0] < self.a[12]", []),
        ("self.a in [3.0, 4.0]", [3.0, 4.0]),
        ("self.a < {'s': 0.7}[parameters.m] * -0x10", [0.7, 16.0]),
        ("size(self.a) == 7 && self.b == '42'", [7.0]),
        ("self.a > .5", [0.5]),
    ],
)
def test_literals(rule: str, numbers: list[float]) -> None:
    """The numbers in a rule are its thresholds, except positions of a list and digits in names."""
    assert numbers == literals(parse(rule))


def test_the_engine_comes_without_its_command_line() -> None:
    """Its package imports typer, rich and prompt_toolkit, which takes a tenth of a second."""
    code = "import sys; from harness.contract.expression import engine; engine(); print('typer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


def test_what_the_engine_says_is_cut() -> None:
    """The engine's message is cut at its first sentence, and at 200 characters."""
    compiled = compile_rule("the-rule", "self.a < 1.0", "the message")
    scope = Scope((compiled,), {"a": 0.0}, {}, Device("cpu", "a CPU"), {"a": True})
    for said, kept in (("a" * 201, "a" * 200), ("a" * 200, "a" * 200), ("First. Second", "First")):
        program = Mock(**{"execute.side_effect": ValueError(said)})
        assert replace(compiled, program=program).judge(scope).reason == Reason(
            ReasonCode.CANNOT_BE_EVALUATED, text=kept
        )
