"""Bounds in words."""

from __future__ import annotations

from typing import Any

import pytest

from harness.base import strictjson
from harness.base.schemas import schema_folder
from harness.contract.bound import RULE, Bound
from harness.contract.keywords import _CHECKS
from harness.report.messages import bound_text


@pytest.mark.parametrize(
    ("keyword", "limit", "unit", "expected"),
    [
        ("minimum", 0.001, "nats", "at least 0.001 nats"),
        ("maximum", 1073741824, "B", "at most 1 GiB"),
        ("exclusiveMinimum", 0, "", "above 0"),
        ("maxItems", 0, "", "no items"),
        ("minItems", 1, "", "at least 1 item"),
        ("minItems", 50, "", "at least 50 items"),
        ("maxLength", 64, "", "at most 64 characters"),
        ("type", "integer", "steps", "an integer"),
        ("type", "null", "", "null"),
        ("const", 50, "steps", "50 steps"),
        ("const", True, "", "true"),
        ("const", [], "", "[]"),
        ("enum", ["cpu", "cuda", 3], "", "cpu, cuda or 3"),
        ("enum", [""], "", '""'),
        ("pattern", "^a$", "", "of the form ^a$"),
        ("uniqueItems", True, "", "no item twice"),
        ("closed", ["a", "b"], "", "no undeclared properties"),
        ("rule", "self.loss < 2.0", "nats", "self.loss < 2.0"),
        ("rule", "minimum of them", "", "minimum of them"),
    ],
)
def test_bounds(keyword: str, limit: Any, unit: str, expected: str) -> None:
    """A rule is shown unchanged."""
    assert bound_text.of(Bound(keyword, limit), unit) == expected


def test_every_keyword_has_words() -> None:
    """A new keyword needs words here, and a place in the schema of records."""
    limits: dict[str, Any] = {"type": "null", "enum": [1], "closed": []}
    for keyword in _CHECKS:
        bound = Bound(keyword, limits.get(keyword, 1))
        assert bound_text.of(bound) != str(bound)
    schema = strictjson.load(schema_folder() / "record.schema.json")
    assert {*_CHECKS, RULE} == set(schema["$defs"]["bound"]["properties"]["keyword"]["enum"])
