"""What `harness new` left for the author to write: texts that begin with TODO, in a contract and in its code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.base import regular_file
from harness.base.strictjson import pointer
from harness.contract.entry_point import EntryPointError, locate
from harness.contract.model import Contract

__all__ = ["unwritten_code", "unwritten_texts"]

_DOCSTRING = re.compile(r'^[ ]*"""TODO\b', re.MULTILINE)


def unwritten_texts(value: Any, *place: str | int) -> Iterator[tuple[str, str]]:
    """Yield the texts of a contract's document that are not written yet, each with its JSON pointer."""
    if isinstance(value, str) and value.lstrip().startswith("TODO"):
        yield pointer(*place), value
    elif isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from unwritten_texts(item, *place, key)


def unwritten_code(contract: Contract, search: Sequence[Path]) -> Iterator[tuple[str, Path, int]]:
    """Yield the first docstring that is not written yet in each module of a contract: entry point, file and line."""
    reported: set[Path] = set()
    for entry in contract.entry_points:
        try:
            path = locate(entry, tuple(search))
            text = regular_file.read(path).decode("utf-8", "replace")
        except (EntryPointError, OSError, ValueError):
            continue
        if path not in reported and (match := _DOCSTRING.search(text)):
            reported.add(path)
            yield entry, path, text.count("\n", 0, match.start()) + 1
