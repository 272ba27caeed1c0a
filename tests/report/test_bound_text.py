"""Bounds in words."""

from __future__ import annotations

import pytest

from harness.contract.keywords import _CHECKS
from harness.report import bound_text


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("minimum 0.001", "nats", "at least 0.001 nats"),
        ("maximum 1073741824", "B", "at most 1 GiB"),
        ("exclusiveMinimum 0", "", "above 0"),
        ("maxItems 0", "", "no items"),
        ("minItems 1", "", "at least 1 item"),
        ("minItems 50", "", "at least 50 items"),
        ("maxLength 64", "", "at most 64 characters"),
        ('type "integer"', "steps", "an integer"),
        ('type "null"', "", "null"),
        ("const 50", "steps", "50 steps"),
        ("const true", "", "true"),
        ("const []", "", "[]"),
        ('enum ["cpu", "cuda", 3]', "", "cpu, cuda or 3"),
        ('enum [""]', "", '""'),
        ('pattern "^a$"', "", "of the form ^a$"),
        ("uniqueItems true", "", "no item twice"),
        ("no undeclared properties", "", "no undeclared properties"),
        ("self.loss < 2.0", "nats", "self.loss < 2.0"),
        ("requested 'cpu'", "", "requested 'cpu'"),
        ("minimum of them", "", "minimum of them"),
    ],
)
def test_bounds(text: str, unit: str, expected: str) -> None:
    """What is no keyword's bound stays as it is."""
    assert bound_text.bound(text, unit) == expected


def test_every_keyword_has_words() -> None:
    """So that a keyword added to the dialect is not forgotten here."""
    assert set(_CHECKS) - {"closed"} == set(bound_text._WORDS)
