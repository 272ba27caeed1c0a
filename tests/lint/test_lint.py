"""Lint finds contracts that load but cannot be refuted or cannot be satisfied."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import Outcome
from harness.cli.lint import Report
from harness.contract import Contract
from harness.judging.judge import judge
from harness.lint import Finding, Severity
from harness.lint import lint as statically
from harness.tools.search.lint import about_both_ways
from tests.contracts import contract_of, document, observe, write_project

_NUMBER = {"type": "number"}


def lint(contract: Contract) -> list[Finding]:
    """The findings of `harness lint` on a contract, without its files."""
    return [*statically(contract), *about_both_ways(contract)]


def contract_with(*rules: str, source: str = "a test", **properties: Any) -> dict[str, Any]:
    """The valid contract with added rules and properties."""
    content = document()
    content["observation"]["properties"].update(properties)
    for index, rule in enumerate(rules):
        added = {"id": f"added-{index}", "rule": rule, "message": "the message", "source": source}
        content["rules"].append({key: value for key, value in added.items() if value})
    return content


def findings(content: dict[str, Any]) -> list[Finding]:
    """The findings about a contract; each has a remedy."""
    found = lint(contract_of(content))
    assert all(finding.remedy for finding in found)
    return found


def test_the_valid_contract_is_sound() -> None:
    """A sound contract has no finding."""
    expected: list[Finding] = []
    assert expected == findings(document())


_ERRORS: list[tuple[dict[str, Any], str, str]] = [
    (document(target={"device": "any CPU"}), "target-unnamed", "/target/device"),
    (
        contract_with("self.smallest > self.largest"),
        "contract-unsatisfiable",
        "/rules/2/rule",
    ),
    (
        contract_with(x={"type": "number", "minimum": 5, "maximum": 3, "x-source": "a test"}),
        "contract-unsatisfiable",
        "/observation/properties/x/maximum",
    ),
    (
        contract_with(x={"type": "string", "minimum": 0}),
        "contract-unsatisfiable",
        "/observation/properties/x/minimum",
    ),
    (
        contract_with(x={"type": "array", "maxItems": 0, "items": _NUMBER}),
        "contract-unsatisfiable",
        "/observation/properties/x/items/type",
    ),
    (
        contract_with("self.smallest <= self.largest || self.smallest > self.largest"),
        "clause-unviolable",
        "/rules/2/rule",
    ),
    (
        contract_with(x={"type": "number", "maximum": 1.7976931348623157e308, "x-source": "a test"}),
        "clause-unviolable",
        "/observation/properties/x/maximum",
    ),
    (
        contract_with(x={"type": "string", "minLength": 0}),
        "clause-unviolable",
        "/observation/properties/x/minLength",
    ),
    (
        contract_with(x={"type": "string", "pattern": ".*"}),
        "clause-unviolable",
        "/observation/properties/x/pattern",
    ),
    (
        contract_with("2 * self.smallest < self.largest"),
        "integer-literal-in-rule",
        "/rules/2/rule",
    ),
    (
        contract_with("self.smallest < 1.0 || 2 * self.largest < 1.0"),
        "integer-literal-in-rule",
        "/rules/2/rule",
    ),
    (
        contract_with("self.smallest % self.largest == 0.0"),
        "rule-cannot-be-evaluated",
        "/rules/2/rule",
    ),
    (
        contract_with("self.smallest + 1.0"),
        "rule-not-boolean",
        "/rules/2/rule",
    ),
    (
        contract_with("self.smallest / self.largest < 5.0"),
        "division-by-measurement-that-may-be-zero",
        "/rules/2/rule",
    ),
    (
        contract_with("self.smallest / (self.largest + 1.0) < 5.0"),
        "division-by-measurement-that-may-be-zero",
        "/rules/2/rule",
    ),
    (
        contract_with("self.smallest < 2.5 * self.largest + 100.0", source=""),
        "threshold-without-source",
        "/rules/2/rule",
    ),
    (
        contract_with(x={"type": "number", "minimum": 0.5}),
        "threshold-without-source",
        "/observation/properties/x/minimum",
    ),
    (
        contract_with(x={"type": "array", "minItems": 50, "items": _NUMBER}),
        "threshold-without-source",
        "/observation/properties/x/minItems",
    ),
    (
        contract_with(x={"type": "array", "items": _NUMBER}),
        "array-may-be-empty",
        "/observation/properties/x",
    ),
    (
        contract_with(x={"type": "object", "properties": {"y": {"type": "array", "minItems": 0, "items": _NUMBER}}}),
        "array-may-be-empty",
        "/observation/properties/x/properties/y",
    ),
    (
        contract_with("self.x.all(time, time <= self.largest)", x={"type": "array", "maxItems": 1}),
        "array-may-be-empty",
        "/observation/properties/x",
    ),
    (
        contract_with("self.x.all(time, time <= self.largest)", x={"type": "array", "maxItems": 0}),
        "contract-unsatisfiable",
        "/rules/2/rule",
    ),
    (
        contract_with(x={"type": "object"}),
        "map-may-be-empty",
        "/observation/properties/x",
    ),
]


@pytest.mark.parametrize(("content", "rule", "pointer"), _ERRORS)
def test_errors(content: dict[str, Any], rule: str, pointer: str, snapshot: Any) -> None:
    """A contract that cannot both pass and fail, or that proves nothing, has an error. A snapshot has the message."""
    found = next(finding for finding in findings(content) if finding.rule == rule)
    assert (found.severity, found.pointer) == (Severity.ERROR, pointer)
    assert found.message == snapshot


def test_an_unsatisfiable_contract_shows_the_nearest_observation() -> None:
    """The example violates only the clause that the message names."""
    content = contract_with("self.smallest > self.largest")
    (found,) = findings(content)
    assert found.example is not None
    judgment = judge(contract_of(content), observe(found.example))
    expected = [["added-0"], ["ordered"]]
    assert [clause.id for clause in judgment.with_outcome(Outcome.FAIL)] in expected


NESTED = "self.x.exists(b, a != b)"
LISTED = {"type": "array", "minItems": 1, "items": {"type": "number"}}


def test_a_declared_length_bounds_what_a_rule_costs() -> None:
    """Nested macros over a hundred items cost little, and so does one macro over any list."""
    bounded = contract_with(f"self.x.all(a, {NESTED})", x={**LISTED, "maxItems": 100, "x-source": "a test"})
    for content in (bounded, contract_with(NESTED.replace("a != b", "b > 0.0"), x=LISTED)):
        assert "rule-length-unbounded" not in {finding.rule for finding in findings(content)}


def test_an_unviolable_clause_shows_what_was_searched() -> None:
    """The example satisfies the contract, because the search started from it."""
    content = contract_with("self.smallest <= self.largest || self.smallest > self.largest")
    (found,) = findings(content)
    assert found.example is not None
    assert judge(contract_of(content), observe(found.example)).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("changes", "rule", "pointer"),
    [
        ({"profiles": {"reduced": document()["profiles"]["reduced"]}}, "full-profile-missing", "/profiles"),
        ({"target": ...}, "target-absent", ""),
        (
            {"mutants": [{**document()["mutants"][0], "requires": {"device": "cuda"}}]},
            "mutants-need-cuda",
            "/mutants",
        ),
        (
            contract_with("self.smallest <= self.largest + 3.0", source="TODO"),
            "text-to-do",
            "/rules/2/source",
        ),
        (contract_with(f"self.x.all(a, {NESTED})", x=LISTED), "rule-length-unbounded", "/rules/2/rule"),
    ],
)
def test_warnings(changes: dict[str, Any], rule: str, pointer: str) -> None:
    """A contract that may be intended has a warning, not an error."""
    found = findings(document(**changes))
    assert [(Severity.WARNING, rule, pointer)] == [
        (finding.severity, finding.rule, finding.pointer) for finding in found
    ]


@pytest.mark.parametrize(
    "content",
    [
        contract_with("self.smallest / self.x < 5.0", x={"type": "number", "exclusiveMinimum": 0}),
        contract_with(
            "self.smallest / self.x < 5.0", x={"type": "number", "minimum": 2, "x-source": "a test", "x-unit": "m"}
        ),
        contract_with(
            "self.smallest / self.x.y < 5.0", x={"type": "object", "properties": {"y": {"const": 4, "x-source": "s"}}}
        ),
        contract_with("self.smallest / parameters.steps < 5.0"),
        contract_with("self.smallest / 2.0 < 5.0"),
        contract_with("self.smallest / double(size(self.values)) < 5.0"),
        contract_with("self.smallest < self.largest + 1.0", source=""),
        contract_with("self.x == self.y", x={"type": "string", "minLength": 1}, y={"type": "string", "minLength": 1}),
        contract_with("self.x == parameters.steps", x={"type": "integer"}),
        contract_with("self.values.all(x, x >= self.smallest)"),
        contract_with("self.values[0] < self.values[2]"),
        contract_with("self.smallest <= self.largest + self.x", x={"type": "number", "minimum": 0}),
        contract_with("double(size(self.values)) == self.given"),
        contract_with(x={"type": "string", "pattern": "^[0-9a-f]{64}$"}),
        contract_with(x={"type": "string", "pattern": "^sm_[0-9]{2,3}[af]?$", "examples": ["sm_121"]}),
        contract_with(x={"enum": ["a", "b"]}, y={"const": True}, z={"type": "null"}, b={"type": "boolean"}),
        contract_with(x={"type": "number", "multipleOf": 0.25, "x-source": "a test", "x-unit": "m"}),
        contract_with(x={"type": "array", "maxItems": 0}),
        contract_with(
            x={"type": "array", "minItems": 2000, "x-source": "a test", "items": {"type": "number", "minimum": 0}}
        ),
        contract_with(
            x={"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "string", "minLength": 1}}
        ),
        contract_with(
            x={"type": "object", "minProperties": 1, "additionalProperties": {"type": "number", "minimum": 0}}
        ),
        contract_with(
            x={
                "type": "object",
                "properties": {"a": _NUMBER, "b": {"type": "array", "minItems": 1, "items": {"type": "integer"}}},
            }
        ),
        contract_with(
            "self.a == self.b * 12345.5 + 6789.25",
            a={**_NUMBER, "examples": [19134.75]},
            b={**_NUMBER, "examples": [1.0]},
        ),
    ],
)
def test_sound_contracts(content: dict[str, Any]) -> None:
    """A contract that can both pass and fail has no finding. An example helps if no search would find one."""
    expected: list[str] = []
    assert expected == [f"{finding.rule}: {finding.message}" for finding in findings(content)]


def test_each_profile_is_searched() -> None:
    """Lint finds a clause that cannot fail in the reduced profile alone."""
    content = contract_with("self.smallest <= self.largest || parameters.steps < 3.0")
    content["profiles"]["reduced"]["parameters"]["steps"] = 2
    (found,) = findings(content)
    assert found.rule == "clause-unviolable"
    assert "(reduced)" in found.message


def test_a_reference_is_pointed_to_where_it_is_written() -> None:
    """A finding about a shared definition points into `$defs`."""
    content = contract_with(x={"$ref": "#/$defs/loss"})
    content["observation"]["$defs"] = {"loss": {"type": "number", "maximum": 9, "x-unit": "m"}}
    (found,) = findings(content)
    assert found.pointer == "/observation/$defs/loss/maximum"


def test_a_threshold_wants_a_unit() -> None:
    """A number with a fraction needs a unit. A count, and the size of a list, do not."""
    number = {"type": "number", "maximum": 0.5, "x-source": "a test"}
    counted = {"type": "array", "minItems": 2, "x-source": "a test", "items": {"type": "integer", "maximum": 7}}
    counted["items"] |= {"x-source": "a test"}
    (found,) = findings(contract_with(x=number, y=counted))
    assert (found.rule, found.severity) == ("threshold-without-unit", Severity.WARNING)
    assert found.pointer == "/observation/properties/x/maximum"
    assert findings(contract_with(x={**number, "x-unit": "s"})) == []


def test_lint_is_deterministic() -> None:
    """The same contract has the same findings with the same examples."""
    content = contract_with("self.smallest > self.largest")
    assert findings(content) == findings(content)


def test_the_order_of_findings_is_errors_first() -> None:
    """Errors come first."""
    content = contract_with(x={"type": "number", "minimum": 0.5, "x-unit": "m"})
    del content["target"]
    report = Report.of(Path("contract.json"), findings(content))
    assert [finding.severity for finding in report.findings] == [Severity.ERROR, Severity.WARNING]


def test_lint_takes_under_two_seconds() -> None:
    """A contract of 25 clauses and four rules takes less than two seconds."""
    loss = {"type": "number", "minimum": 0}
    content = contract_with(
        "self.a < self.b",
        "self.c <= 1.5 * self.a && self.a <= 1.5 * self.c",
        **dict.fromkeys("abcdefgh", loss),
    )
    contract = contract_of(content)
    assert len(contract.clauses) >= 25
    lint(contract)  # imports, and the preparations of hypothesis once in each process
    started = time.process_time()
    lint(contract)
    assert time.process_time() - started < 2.0


def test_lint_leaves_nothing_behind(tmp_path: Path) -> None:
    """Hypothesis writes no folder into the current one."""
    contract = tmp_path / "contract.json"
    contract.write_text(json.dumps(document()), encoding="utf-8")
    script = (
        "import json; from pathlib import Path; from harness.contract import parse;"
        "from harness.tools.search.lint import about_both_ways;"
        "path = Path('contract.json'); about_both_ways(parse(json.loads(path.read_text()), path, b''))"
    )
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert [contract] == list(tmp_path.iterdir())


def test_the_search_begins_with_an_example_of_the_observation() -> None:
    """The example can be partial. Without it, the search does not find two numbers that depend on each other."""
    content = contract_with(
        "self.a > 1.09 * self.b", "self.a < 1.0901 * self.b", a=_NUMBER, b={**_NUMBER, "minimum": 9}
    )
    content["observation"]["properties"]["b"] |= {"x-source": "a test", "x-unit": "m"}
    assert "contract-unsatisfiable" in [finding.rule for finding in findings(content)]
    content["observation"]["examples"] = [{"a": 10.9005, "b": 10.0}]
    assert [finding.rule for finding in findings(content)] == []


@pytest.mark.parametrize(("call", "found"), [("device='cpu'", ["steps"]), ("steps=3", []), ("**told", [])])
def test_a_parameter_that_nothing_reads_back_is_named(tmp_path: Path, call: str, found: list[str]) -> None:
    """The judge compares it with what ran; without a call it is NOT_MEASURED. Arguments in a mapping may have it."""
    root = write_project(tmp_path)
    path = root / "falsifiers" / "demo" / "sorting.py"
    path.write_text(f"def falsify(trial):\n    told = {{}}\n    trial.resolve({call})\n")
    findings = [
        finding for finding in statically(contract_of(document()), [root]) if finding.rule == "parameter-not-read-back"
    ]
    places = [f"/profiles/{profile}/parameters/{name}" for profile in ("full", "reduced") for name in found]
    assert [finding.pointer for finding in findings] == places
    assert all("trial.resolve(steps=" in finding.remedy for finding in findings)
