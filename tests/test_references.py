"""What a contract refers to: definitions of its own, measurements and parameters in rules, patterns."""

from __future__ import annotations

from typing import Any

import pytest

from harness.project import Project
from tests.contracts import write_contract
from tests.refusals import observed, refused, ruled


@pytest.mark.parametrize(
    ("schema", "definitions", "pointer", "message"),
    [
        (
            {"$ref": "https://example.org/schema.json"},
            {},
            "/observation/properties/added/$ref",
            "'https://example.org/schema.json' is not of the form",
        ),
        ({"$ref": "other.json#/$defs/a"}, {}, "/observation/properties/added/$ref", "'other.json#/$defs/a' is not of"),
        ({"$ref": "#/properties/given"}, {}, "/observation/properties/added/$ref", "'#/properties/given' is not of"),
        ({"$ref": "#/$defs/b"}, {}, "/observation/properties/added/$ref", "#/$defs/b does not exist"),
        (
            {"$ref": "#/$defs/a"},
            {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
            "/observation/$defs/a/items/$ref",
            "#/$defs/a refers to itself",
        ),
        (
            {"$ref": "#/$defs/a"},
            {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            "/observation/$defs/b/$ref",
            "#/$defs/a refers to itself",
        ),
        (
            {"$ref": "#/$defs/a", "maximum": 9},
            {"a": {"type": "number", "maximum": 5}},
            "/observation/properties/added/maximum",
            "#/$defs/a has 'maximum' too",
        ),
        (
            {"$ref": "#/$defs/a0"},
            {
                f"a{level}": {
                    "type": "object",
                    "properties": {name: {"$ref": f"#/$defs/a{level + 1}"} for name in ("x", "y")},
                }
                for level in range(40)
            }
            | {"a40": {"type": "number"}},
            "/observation/$defs",
            "writing the references out gives over 2000 schemas",
        ),
    ],
)
def test_references(
    project: Project, schema: dict[str, Any], definitions: dict[str, Any], pointer: str, message: str
) -> None:
    """A reference that is remote, recursive, dangling, contradicted or explosive is refused."""
    content = observed(added=schema)
    content["observation"]["$defs"] = definitions
    problem = refused(project, content)[0]
    assert (pointer, message) == (problem.pointer, problem.message[: len(message)])
    assert problem.remedy


def test_local_references_are_put_in_place(project: Project) -> None:
    """A definition of the observation may be used, and added to."""
    content = observed(a={"$ref": "#/$defs/loss"}, b={"$ref": "#/$defs/loss", "maximum": 5, "x-source": "here"})
    content["observation"]["$defs"] = {"loss": {"type": "number", "minimum": 0}}
    contract = project.load(write_contract(project.root, content))
    expected = ["a.type", "a.minimum", "b.type", "b.minimum", "b.maximum"]
    assert expected == [clause.id for clause in contract.clauses if clause.path[0] in "ab"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("self.given <", "does not compile"),
        ("self.gven == 3.0", "self.gven is not in the observation"),
        ("self.given.count == 3.0", "self.given.count is not in the observation"),
        ("self.given == parameters.setps", "parameters.setps is not in profile full"),
        ("self.given == 3.0 || device.typ == 'cpu'", "device.typ does not exist"),
        ("self.given == limit", "names 'limit', which does not exist"),
        ("abs(self.given) < 1.0", "calls abs(), which does not exist"),
        ("parameters.steps == 3.0", "reads no measurement"),
        ("self == self", "uses self, parameters or device as a whole"),
    ],
)
def test_rules(project: Project, rule: str, message: str) -> None:
    """A rule that does not compile, or names what there is not, is refused."""
    (problem,) = refused(project, ruled(rule))
    assert ("/rules/2/rule", message) == (problem.pointer, problem.message[: len(message)])
    assert problem.remedy


@pytest.mark.parametrize("pattern", ["(?=a)a", r"(a+)\1", "(", "((a{100}){100}){100}"])
def test_patterns(project: Project, pattern: str) -> None:
    """A regular expression that could run away is refused where it stands."""
    (problem,) = refused(project, observed(digest={"type": "string", "pattern": pattern}))
    assert problem.pointer == "/observation/properties/digest/pattern"
    assert "RE2" in problem.remedy
