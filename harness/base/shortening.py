"""Texts and lists that are too long to show, and characters that must not be shown."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["cut", "first", "printable"]


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters. An ellipsis stands for the rest."""
    return text if len(text) <= most else text[: most - 1] + "…"


def first(names: Sequence[str], most: int) -> str:
    """Return the first `most` names, with commas, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def printable(text: str) -> str:
    """Return one line in which characters that control terminals, reorder text or break XML are escaped."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
