"""The nearest known name."""

from __future__ import annotations

from harness.base.near import hint


def test_the_nearest_name_is_suggested_in_its_own_case() -> None:
    """Without a near name, the other remedy is given. The form surrounds the name."""
    assert hint("ITEMZ", ["Items", "seed"], "none") == "did you mean Items?"
    assert hint("itemz", ["items"], "none", "{{{}}}") == "did you mean {items}?"
    assert hint("weights", ["items", "seed"], "it has items, seed") == "it has items, seed"
    assert hint("i" * 10**6, ["items"], "none") == "none"
