"""References in a contract: its own definitions, measurements and parameters in rules, and patterns."""

from __future__ import annotations

from typing import Any

import pytest

from harness.contract.clauses import ITEM, VALUE
from harness.contract.project import Project
from harness.contract.references import inline, pointer_of
from tests.refusals import observed, refused


@pytest.mark.parametrize(
    ("schema", "definitions", "pointer"),
    [
        (
            {"$ref": "https://example.org/schema.json"},
            {},
            "/observation/properties/added/$ref",
        ),
        ({"$ref": "other.json#/$defs/a"}, {}, "/observation/properties/added/$ref"),
        ({"$ref": "#/properties/given"}, {}, "/observation/properties/added/$ref"),
        ({"$ref": "#/$defs/b"}, {}, "/observation/properties/added/$ref"),
        (
            {"$ref": "#/$defs/a"},
            {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
            "/observation/$defs/a/items/$ref",
        ),
        (
            {"$ref": "#/$defs/a"},
            {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            "/observation/$defs/b/$ref",
        ),
        (
            {"$ref": "#/$defs/a", "maximum": 9},
            {"a": {"type": "number", "maximum": 5}},
            "/observation/properties/added/maximum",
        ),
        (
            {"$ref": "#/$defs/a", "minimum": 1, "maximum": 5},
            {"a": {"type": "number", "maximum": 5, "minimum": 1}},
            "/observation/properties/added/maximum",
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
        ),
    ],
)
def test_references(
    project: Project, schema: dict[str, Any], definitions: dict[str, Any], pointer: str, snapshot: Any
) -> None:
    """A remote, recursive, dangling, contradicted or too large reference is refused. A snapshot has the messages."""
    content = observed(added=schema)
    content["observation"]["$defs"] = definitions
    problem = refused(project, content)[0]
    assert problem.pointer == pointer
    assert str(problem) == snapshot
    assert problem.remedy


NUMBER = {"type": "number"}


@pytest.mark.parametrize("annotation", ["title", "description", "examples", "x-unit", "x-source"])
def test_what_is_said_beside_a_reference_outranks_what_it_says(annotation: str) -> None:
    """Annotations beside a reference replace those of the definition. A clause may be stated only once."""
    definitions = {"loss": {**NUMBER, annotation: "any loss"}}
    schema = {"properties": {"a": {"$ref": "#/$defs/loss", annotation: "this loss"}}, "$defs": definitions}
    assert inline(schema, "observation") == ({"properties": {"a": {**NUMBER, annotation: "this loss"}}}, [])


@pytest.mark.parametrize(("many", "refused"), [(1_999, 0), (2_000, 1)])
def test_how_many_schemas_a_schema_may_hold(many: int, refused: int) -> None:
    """The schema itself counts. Too many schemas give one problem, not one each."""
    _, problems = inline({"properties": {f"p{n}": NUMBER for n in range(many)}}, "parameters")
    assert [problem.pointer for problem in problems] == ["/parameters/$defs"] * refused


def test_a_problem_of_a_definition_is_told_once() -> None:
    """A problem of a definition is reported once, however many references there are."""
    schema = {
        "properties": {"a": {"$ref": "#/$defs/list"}, "b": {"$ref": "#/$defs/list"}, "c": {"$ref": "#/$defs/none"}},
        "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/lost"}}},
    }
    _, problems = inline(schema, "parameters")
    assert [str(problem) for problem in problems] == [
        "/parameters/$defs/list/items/$ref: #/$defs/lost does not exist (define it in parameters.$defs)",
        "/parameters/properties/c/$ref: #/$defs/none does not exist (define it in parameters.$defs)",
    ]


_SCHEMA = {
    "properties": {
        "loss": {"$ref": "#/$defs/loss", "maximum": 5},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "by~name": {"type": "object", "additionalProperties": {"$ref": "#/$defs/also"}},
    },
    "$defs": {
        "loss": {**NUMBER, "minimum": 0},
        "also": {"$ref": "#/$defs/row"},
        "row": {"type": "object", "properties": {"time": {"$ref": "#/$defs/loss"}}},
    },
}


@pytest.mark.parametrize(
    ("path", "keyword", "expected"),
    [
        (("loss",), "", "/observation/properties/loss"),
        (("loss",), "maximum", "/observation/properties/loss/maximum"),
        (("loss",), "minimum", "/observation/$defs/loss/minimum"),
        (("rows", ITEM), "type", "/observation/$defs/row/type"),
        (("rows", ITEM), "", "/observation/properties/rows/items"),
        (("rows", ITEM, "time"), "", "/observation/$defs/row/properties/time"),
        (("rows", ITEM, "time"), "minimum", "/observation/$defs/loss/minimum"),
        (("by~name", VALUE), "type", "/observation/$defs/row/type"),
        (("by~name", VALUE), "", "/observation/properties/by~0name/additionalProperties"),
        (("by~name", VALUE, "time"), "", "/observation/$defs/row/properties/time"),
        (("by~name",), "type", "/observation/properties/by~0name/type"),
        (("loss",), "const", "/observation/$defs/loss"),
    ],
)
def test_where_a_clause_stands(path: tuple[str, ...], keyword: str, expected: str) -> None:
    """The place of a clause is in the definition, if the keyword is there.

    A keyword that the contract lacks points to its schema.
    """
    assert pointer_of(_SCHEMA, "observation", path, keyword) == expected


def test_references_are_put_in_place_wherever_they_stand() -> None:
    """References in properties, items and map values are resolved, also through other definitions."""
    loss = {**NUMBER, "minimum": 0}
    row = {"type": "object", "properties": {"time": loss}}
    whole, problems = inline(_SCHEMA, "observation")
    assert problems == []
    assert whole == {
        "properties": {
            "loss": {**loss, "maximum": 5},
            "rows": {"type": "array", "items": row},
            "by~name": {"type": "object", "additionalProperties": row},
        }
    }
