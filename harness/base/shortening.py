"""Texts for messages: shortening, escaping of control characters, paths and exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["cut", "described", "first", "near_path", "printable"]


def cut(text: str, most: int) -> str:
    """Shorten a text to at most `most` characters, with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def first(names: Sequence[str], most: int) -> str:
    """Join the first `most` names with commas, and add the number of others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def printable(text: str) -> str:
    """Return one line in which characters that control terminals, reorder text or break XML are escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def near_path(path: Path) -> str:
    """Return a path relative to the current folder, if it is below it."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the subject has removed it
        return str(path)
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def described(error: BaseException) -> str:
    """Return type and text of an exception; only the type if it has no text, and if its `str` raises."""
    try:
        text = str(error)
    except Exception as another:
        return f"{type(error).__name__}, whose text raises {type(another).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
