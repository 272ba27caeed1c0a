"""The cost of judging follows from sizes, is never too low, and is refused in advance if it is too high."""

from __future__ import annotations

import dataclasses
import random
import time
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.device import Device
from harness.base.strictjson import DEEPEST, JsonObject
from harness.base.vocabulary import Outcome
from harness.contract import ContractError
from harness.contract.clauses import is_finite
from harness.contract.cost import (
    LIMIT,
    Allowance,
    Shape,
    _Evaluation,
    checking,
    evaluation,
    matching,
    of_schema,
    of_value,
    of_values,
)
from harness.contract.expression import engine, parse
from harness.contract.keywords import check_of
from harness.contract.reasons import ReasonCode
from harness.contract.rules import RuleError, Scope, compile_rule
from harness.judging.judge import judge
from tests.contracts import contract_of, document, healthy, observe

NESTED = "self.values.all(one, self.values.all(other, one == other || one - other != 0.5))"
SLOWEST = 1e-6
"""Seconds of a step on a busy machine. On an idle one, no step of these tests took more than 0.07 us."""


def with_rule(rule: str, **sizes: int) -> dict[str, Any]:
    """The document with one more rule, and these limits of its list."""
    changed = document()
    changed["observation"]["properties"]["values"] |= sizes
    changed["rules"].append({"id": "slow", "rule": rule, "message": "slow"})
    return changed


@pytest.mark.parametrize("rule", [NESTED, "self.values.map(one, self.values).size() > 0"])
def test_a_rule_that_can_take_minutes_is_refused_when_it_is_loaded(rule: str) -> None:
    """The loader names the rule by its pointer. With few items, the same rule is accepted."""
    changed = with_rule(rule, maxItems=20_000)
    with pytest.raises(ContractError) as refused:
        contract_of(changed)
    assert [problem.pointer for problem in refused.value.problems] == [f"/rules/{len(changed['rules']) - 1}/rule"]
    contract_of(with_rule(rule, maxItems=20))


def test_the_clauses_of_a_schema_cost_too() -> None:
    """A large regular expression on many texts is refused at its own pointer."""
    changed = document()
    texts = {"type": "string", "maxLength": 1000, "pattern": r"^\w{100}$"}
    changed["observation"]["properties"]["texts"] = {"type": "array", "minItems": 1, "maxItems": 5000, "items": texts}
    with pytest.raises(ContractError) as refused:
        contract_of(changed)
    assert [problem.pointer for problem in refused.value.problems] == ["/observation/properties/texts/items/pattern"]


def test_the_limit_is_shared_by_all_trials() -> None:
    """A contract with many mutants may spend less on each, because `verify` judges all of them."""
    rule = "self.values.all(one, self.values.exists(other, other == one))"
    contract_of(with_rule(rule, maxItems=1000))
    crowded = with_rule(rule, maxItems=1000)
    mutant = crowded["mutants"][0]
    crowded["mutants"] = [{**mutant, "id": f"mutant-{number}"} for number in range(50)]
    with pytest.raises(ContractError):
        contract_of(crowded)


def test_more_than_was_declared_is_not_judged_by_a_costly_rule() -> None:
    """The costly rule is NOT_MEASURED at once. Clauses that cost little are judged."""
    contract = contract_of(with_rule(NESTED, maxItems=20))
    begun = time.process_time()
    judgment = judge(contract, observe(healthy(values=[float(number) for number in range(20_000)])))
    assert time.process_time() - begun < 10
    results = {clause.id: clause for clause in judgment.clauses}
    assert results["values.maxItems"].outcome is Outcome.FAIL
    assert results["slow"].outcome is Outcome.NOT_MEASURED
    reason = results["slow"].reason
    assert reason is not None
    assert (reason.code, reason.place) == (ReasonCode.TOO_COSTLY, "self.values")


NUMBERS = [float(number) for number in range(300)]
TABLE = {str(number): 1.0 for number in range(300)}
ROWS = [{"name": "x" * 100, "times": NUMBERS[:20]} for _ in range(100)]


RULES = [
    "self.numbers.all(x, self.numbers.all(y, y >= 0.0))",
    "self.numbers.all(x, size(self.numbers) > 0)",
    "self.numbers.all(x, self.numbers[0] == 0.0)",
    "self.numbers.all(x, x in self.numbers)",
    "self.numbers.all(x, self.numbers == self.numbers)",
    "self.numbers.map(x, x * 2.0).size() > 0",
    "self.numbers.map(x, self.numbers + self.numbers).size() > 0",
    "self.numbers.filter(x, x > 2.0).size() > 0",
    "self.numbers.exists_one(x, x == 2.0)",
    "self.numbers.map(x, x > 2.0, [x, x]).map(y, y + y).size() > 0",
    "[self.numbers + self.numbers].map(a, a + a + a)[0].size() > 0",
    "self.table.all(key, self.table[key] >= 0.0)",
    "self.table.all(key, key in self.table)",
    "self.rows.all(row, row.times.all(x, x >= 0.0))",
    "self.rows.all(row, row in self.rows)",
    "self.rows.all(row, self.text.contains(row.name) || true)",
    "self.rows.map(row, self.text + row.name).size() > 0",
    "self.rows.all(row, row.name.matches('^[a-z]{3,200}$'))",
    r"self.rows.all(row, row.name.matches('^\\w+$'))",
    "self.rows.all(row, string(self.numbers[1]) != 'x')",
    "self.rows.all(row, row.name == 'x' ? true : size(self.rows) > 0)",
]
MORE_RULES = [
    "self.numbers[0] > 1.0",
    "self.numbers[0] > 1.0 && !(self.text == 'x') || -self.numbers[1] in [1.0, 2.0, 3.0]",
    "[[self.numbers], [self.text]].size() == 2",
    "{'a': self.text, 'b': self.numbers}.size() == 2",
    "self.rows[0].name + self.text == 'xy'",
    "self.text + self.text + self.text == 'x'",
    "(self.text + string(self.numbers[0])).contains(self.text)",
    "string(1.0).contains(string(self.text))",
    "(self.numbers + self.rows).size() > 0",
    "(true ? self.numbers : self.rows).all(x, x == x)",
    "(true ? self.text : 'x').matches('^a{3}$')",
    "(self.text + self.text).matches('^a{3}$')",
    "self.rows.exists_one(row, row.name.matches('^a{3}$'))",
    "self.rows.exists(row, row.times[0] > self.limits.low)",
    "self.rows.filter(row, row.name == self.text).all(row, row.times == self.numbers)",
    "self.rows.map(row, row.times).all(times, times.size() > 0)",
    "self.rows.map(row, row.name != '', row.name + self.text).all(name, name.contains('x'))",
    "self.table.map(key, self.table[key] + 1.0).size() > 0",
    "self.table.exists(key, key == self.text)",
    "self.numbers.all(x, x > parameters.steps && x > device.memory_bytes)",
    "self.absent.all(x, x > 0.0)",
    "(self.numbers + self.rows).map(x, x).size() > 0",
    "(self.rows + self.numbers).all(x, (self.text + 'yy').matches('^a{3}$'))",
    "[self.text, 'x', self.numbers, [1.0]].filter(x, x == 1.0).map(y, {'a': y, 'b': 'xyz'}) == []",
    "self.table.map(key, string(key) + string(self.text))[0].contains('a') ? self.table : [self.text]",
    "-self.numbers[0] in self.table && 'a' in self.text",
]


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_takes_longer_than_its_cost(rule: str) -> None:
    """No rule takes longer than its cost, so a contract that the loader accepts is never slow to judge."""
    values = {"numbers": NUMBERS, "table": TABLE, "rows": ROWS, "text": "y" * 10_000}
    compiled = compile_rule("slow", rule, "slow")
    finite = {name: is_finite(value) for name, value in values.items()}
    allowance = Allowance()
    scope = Scope((compiled,), values, {}, Device("cpu", "a CPU"), finite, allowance)
    assert compiled.id not in scope.costly
    begun = time.process_time()
    result = compiled.judge(scope)
    taken = time.process_time() - begun
    assert result.outcome is Outcome.PASS
    assert taken < 0.02 + SLOWEST * (LIMIT - allowance.left)


PATTERNS = [
    "^[0-9a-f]{64}$",
    r"\w{60}",
    r"(\w{8}){8}",
    r"[\w-]{50}",
    r"[^a]{500}",
    r"\pL{20}",
    r"\d{500}",
    "(?i)[a-z]{40}",
    "(((a{10}){10}){10}){3}",
    "(?:a|b?c*){300}",
    ".{300}",
]
MORE_PATTERNS = [
    "",
    "(",
    "a*b+c?d{2,}e{,3}f{4,9}",
    "(?i:a)b",
    "(?x) a {9}",
    "(?xi) a {9}",
    "(?s-i)a.b",
    "((a|b)c){3}(d[^]x]{2})",
    r"[]a]{2}[\w\d\]-]{3}[[:alpha:]&&[^b]]",
    r"\p{Greek}{2}\PL\D\S\B\.",
    "[abc",
    "a)b",
    "a(b(cd",
    "a(b(c)d",
    "(a{0,0}b{0}){1,}",
    r"[\\]a]b",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_pattern_takes_longer_than_its_cost(pattern: str) -> None:
    """The engine of rules compiles an expression again for every text, which takes longer than matching."""
    program = engine().compile("text.matches(pattern)")
    begun = time.process_time()
    program.execute({"text": "a" * 100, "pattern": pattern})
    assert time.process_time() - begun < 0.005 + SLOWEST * matching(pattern, 100)


@pytest.mark.parametrize("pattern", ["^[ab]*a[ab]{400}[cd]", "^(a|b)*a[ab]{50}([ab]*b[ab]{60})*c?d", "^[0-9a-f]{64}$"])
def test_the_keyword_takes_no_longer_than_its_cost(pattern: str) -> None:
    """The text leads to a new set of states at nearly every character, which no cache holds."""
    text = "".join(random.Random(0).choices("ab", k=100_000))
    check, cost = check_of("pattern", pattern), checking("pattern", pattern, [], of_value(text))
    begun = time.process_time()
    check(text)
    assert time.process_time() - begun < SLOWEST * cost


@pytest.mark.parametrize(
    "rule", ["self.text.matches(self.pattern)", "matches(self.text, 'a')", "self.text.matches('a' + 'b')"]
)
def test_matches_needs_a_literal(rule: str) -> None:
    """A pattern that a subject chooses is refused, because its cost cannot be known."""
    with pytest.raises(RuleError):
        compile_rule("slow", rule, "slow")


def test_the_shape_of_a_value_is_within_that_of_its_schema() -> None:
    """The shape of a valid value is within that of its schema, so an observation within the limits is judged."""
    schema = {
        "type": "array",
        "maxItems": 3,
        "items": {"properties": {"name": {"type": "string", "maxLength": 5}, "one": {"type": "array", "maxItems": 2}}},
    }
    value = [{"name": "abcde", "one": [1, 2.5]}] * 3
    assert of_schema(schema).joined(of_value(value)) == of_schema(schema)


def test_a_few_long_lists_among_many_short_ones_cost_little() -> None:
    """A clause on a list itself reads only that list's length, however long the longest list is."""
    changed = document()
    inner = {"type": "array", "maxItems": 0, "items": {"type": "string"}}
    changed["observation"]["properties"]["wrong"] = {"type": "array", "minItems": 1, "items": inner}
    contract = contract_of(changed)
    wrong = [["x" * 100] * 30_000, *[[]] * 30_000]
    results = {clause.id: clause for clause in judge(contract, observe(healthy(wrong=wrong))).clauses}
    assert results["wrong[].maxItems"].outcome is Outcome.FAIL


def test_joined_shapes_are_as_large_as_each() -> None:
    """The joined shape is at least as large as a list with a long text, a long list and a map."""
    items: list[Any] = ["x" * 640, [1.0] * 30, {"a": "x" * 100}]
    whole = of_value(items)
    assert (whole.length, whole.longest) == (3, 640)
    assert whole.inner is not None
    assert all(whole.inner.size >= of_value(item).size for item in items)


def told(cost: int, shape: Shape) -> str:
    """A cost, and the length, text and size of a shape and of what is inside."""
    inner = shape.inner or Shape()
    return " ".join(map(str, (cost, shape.length, shape.text, shape.size, inner.length, inner.text, inner.size)))


def test_every_cost_is_the_same_on_every_version(snapshot: SnapshotAssertion) -> None:
    """Each cost stays the same in every version. A cost decides which clauses of a sealed bundle are judged."""
    values = {"numbers": NUMBERS, "table": TABLE, "rows": ROWS, "text": "y" * 10_000, "limits": {"low": 1.0}}
    shapes = {
        "self": {name: of_value(value) for name, value in values.items()},
        "parameters": of_values([{"steps": 3}, {"steps": [1, 2], "name": "x" * 70}]),
        "device": {},
    }
    assert {rule: evaluation(parse(rule), shapes) for rule in (*RULES, *MORE_RULES)} == snapshot
    parts = _Evaluation(shapes)
    assert {
        rule: [told(*parts.of(node, {})) for node in parse(rule).walk()] for rule in (*RULES, *MORE_RULES)
    } == snapshot
    compiled = {rule: compile_rule("a", rule, "") for rule in RULES}
    sizes = {**shapes, "device": of_values([Device("cpu", "a CPU").to_json()])}
    assert {
        rule: (expression.cost(sizes), expression.largest(sizes)) for rule, expression in compiled.items()
    } == snapshot
    nothing = compile_rule("a", "self.absent > 1.0", "")
    assert (nothing.cost(sizes), nothing.largest(sizes)) == (5, "self")
    lengths = (0, 100)
    assert {
        pattern: [matching(pattern, length) for length in lengths] for pattern in (*PATTERNS, *MORE_PATTERNS)
    } == snapshot
    steps = {"all": [], "items": [True], "names": [True, False], "times": [True, False, True]}
    keywords = {"minimum": 0, "multipleOf": 2, "uniqueItems": True, "const": 1, "enum": [1], "pattern": "a{3}"}
    shape = of_value(ROWS)
    checks = {
        name: {keyword: checking(keyword, value, path, shape) for keyword, value in keywords.items()}
        for name, path in steps.items()
    }
    assert checks == snapshot


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
SCHEMAS: dict[str, JsonObject] = {
    "number": NUMBER,
    "text": TEXT,
    "short text": {**TEXT, "maxLength": 3},
    "long text": {**TEXT, "minLength": 640},
    "list": {"type": "array", "items": NUMBER},
    "long list": {"type": "array", "items": NUMBER, "minItems": 2_000},
    "short list": {"type": "array", "items": TEXT, "maxItems": 5},
    "any list": {"type": "array"},
    "lists": {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": NUMBER}}},
    "map": {"type": "object", "additionalProperties": NUMBER},
    "long map": {"type": "object", "additionalProperties": TEXT, "minProperties": 3_000},
    "short map": {"type": "object", "additionalProperties": {"type": "array", "items": TEXT}, "maxProperties": 7},
    "object": {"type": "object", "properties": {"a": NUMBER, "name": TEXT, "all": {"type": "array", "items": NUMBER}}},
    "const": {"const": [1, "x" * 100, {"key": None}]},
    "enum": {"enum": ["a", "b" * 128, 3]},
    "nothing": {"enum": []},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_shape_is_the_same_on_every_version(name: str, snapshot: SnapshotAssertion) -> None:
    """The shape that a schema allows, with the usual and with another assumed length, as plain numbers."""
    assert [dataclasses.asdict(of_schema(SCHEMAS[name], assumed)) for assumed in (1_000, 250)] == snapshot


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "",
        "x" * 64,
        [],
        [1, 2],
        [[1], [1, 2, 3]],
        {},
        {"a": 1},
        {"long" * 50: 1, "b": ["x" * 200]},
        [{"a": []}, "x"],
        [[["x" * 64], [[1], "x"]]],
    ],
    ids=str,
)
def test_every_size_is_the_same_on_every_version(value: Any, snapshot: SnapshotAssertion) -> None:
    """The shape of each value is the recorded one."""
    assert dataclasses.asdict(of_value(value)) == snapshot


def test_an_allowance_is_spent_to_the_last_step() -> None:
    """All trials share one limit."""
    allowance = Allowance(3)
    assert allowance.left == LIMIT // 4
    assert [allowance.pays(cost) for cost in (LIMIT // 4 - 2, 3, 2, 1, 0)] == [True, False, True, False, True]
    assert allowance.left == 0


def test_what_is_nested_deeper_than_any_value_that_is_judged_does_not_count() -> None:
    """Values nested deeper than the judge reads do not count. The loader reads no deeper either."""
    value: Any = "x" * 640
    for _ in range(DEEPEST + 1):
        value = [value]
    assert of_value(value) == of_value([value])
    assert of_value(value[0]).longest == 640
