"""How an exception is described."""

from __future__ import annotations

import pytest

from harness.base.shortening import described


class Unprintable(Exception):
    """Its text raises."""

    def __str__(self) -> str:
        raise KeyError("text")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no row"), "ValueError: no row"),
        (MemoryError(), "MemoryError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Unprintable(), "Unprintable, whose text raises KeyError"),
    ],
)
def test_type_and_text(error: BaseException, expected: str) -> None:
    """An exception without a text has no colon."""
    assert described(error) == expected
