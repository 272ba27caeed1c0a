"""Changes in words."""

from __future__ import annotations

import math

import pytest

from harness.report.messages.noise_text import change


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (2.0, 3.0, "+50.0%"),
        (-2.0, -3.0, "-50.0%"),
        (0.0, 0.5, "+0.5"),
        (None, 1.0, ""),
        (math.nan, 1.0, ""),
        (1.0, math.inf, ""),
    ],
)
def test_a_change_of_numbers_has_words_and_no_other(before: float | None, after: float | None, said: str) -> None:
    assert change(before, after) == said
