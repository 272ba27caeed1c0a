"""Texts and lists that are cut."""

from __future__ import annotations

import pytest

from harness.base.shortening import cut, first


@pytest.mark.parametrize(("text", "shown"), [("", ""), ("abc", "abc"), ("abcd", "ab…")])
def test_a_text_is_cut_to_its_limit(text: str, shown: str) -> None:
    assert cut(text, 3) == shown


@pytest.mark.parametrize(
    ("most", "shown"), [(1, "a and 2 more"), (2, "a, b and 1 more"), (3, "a, b, c"), (9, "a, b, c")]
)
def test_the_number_of_names_left_out_is_said(most: int, shown: str) -> None:
    assert first(["a", "b", "c"], most) == shown
