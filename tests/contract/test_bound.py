"""The text of a bound."""

from __future__ import annotations

from harness.contract.bound import CLOSED, RULE, Bound


def test_a_rule_stands_for_itself() -> None:
    assert [str(Bound(RULE, "a < b")), str(Bound("minimum", 0.5)), str(Bound(CLOSED, ["a"]))] == [
        "a < b",
        "minimum 0.5",
        'closed ["a"]',
    ]
