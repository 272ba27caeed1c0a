"""The layout of a contract as text: compact JSON of at most 120 columns.

A value that fits is on one line. Otherwise short members share lines, and a longer member has its own lines. Only a
text that is longer than a line, or a first member, which stays beside its brackets, makes a longer line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from harness.base import strictjson

__all__ = ["WIDTH", "laid_out"]

WIDTH = 120
"""Columns of a line."""

_BLOCKS = frozenset({"properties", "$defs", "rules", "mutants", "sources", "profiles", "figures"})
"""Keys whose members each begin a line."""


def laid_out(document: Any) -> str:
    """The text of a JSON document. It keeps the order of keys and ends with a newline.

    The depth of the path to the schemas does not count for the width of a line: a file that moves keeps its digest.
    """
    deep = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(deep, str):
        return _written(document, indent=0, column=0, blocks=False, closing=0) + "\n"
    flat = re.sub(r"^(\.\./)+", "../", deep)
    text = _written({**document, "$schema": flat}, indent=0, column=0, blocks=False, closing=0) + "\n"
    return text.replace(strictjson.dumps(flat), strictjson.dumps(deep), 1)


def _written(value: Any, indent: int, column: int, blocks: bool, closing: int) -> str:
    """The text of a value that begins at `column`, in a container whose lines begin at `indent`.

    Args:
        blocks: Whether each member begins a line.
        closing: How many characters follow on the last line: brackets and a comma.
    """
    line = strictjson.dumps(value)
    if not isinstance(value, (dict, list)) or not value:
        return line
    if column + len(line) + closing <= WIDTH and not (blocks and len(value) > 1):
        return line
    opening, end = ("{", "}") if isinstance(value, dict) else ("[", "]")
    last = len(value) - 1
    members = [
        _Member(prefix, item, indent + 2, key in _BLOCKS, closing + 1 if index == last else 1)
        for index, (prefix, key, item) in enumerate(_members(value))
    ]
    if blocks or any(member.is_block for member in members):
        lines = _filled(members, indent + 2, indent + 2, blocks, 1)
        return f"{opening}\n" + "".join(f"{' ' * (indent + 2)}{line}\n" for line in lines) + f"{' ' * indent}{end}"
    first, *others = _filled(members, column + 1, indent + 2, False, closing + 1)
    return opening + "".join([first, *(f"\n{' ' * (indent + 2)}{line}" for line in others)]) + end


class _Member:
    """The text of one member of a container, written at the beginning of a line.

    It is wrapped if it has several lines, and a block if its closing bracket is on its own line.
    """

    def __init__(self, prefix: str, item: Any, indent: int, blocks: bool, closing: int) -> None:
        self.text = prefix + _written(item, indent, indent + len(prefix), blocks, closing)
        self.is_wrapped = "\n" in self.text
        self.is_block = self.text.endswith((f"\n{' ' * indent}}}", f"\n{' ' * indent}]"))


def _members(value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, str, Any]]:
    """The text before each member, the member's key, and the member."""
    if isinstance(value, dict):
        yield from ((f"{strictjson.dumps(key)}: ", key, item) for key, item in value.items())
    else:
        yield from (("", "", item) for item in value)


def _filled(members: list[_Member], first: int, indent: int, blocks: bool, closing: int) -> list[str]:
    """The lines of members with commas. The first line begins at column `first`, the others at `indent`."""
    lines: list[str] = []
    column = first
    last = len(members) - 1
    fresh = True
    for index, member in enumerate(members):
        text = member.text + ("," if index < last else "")
        room = WIDTH - (closing if index == last else 0)
        if lines and not (fresh or blocks or member.is_wrapped) and column + 1 + len(text) <= room:
            lines[-1] += f" {text}"
            column += 1 + len(text)
        else:
            lines.append(text)
            column = (indent if len(lines) > 1 else first) + len(text)
        fresh = member.is_wrapped
    return lines
