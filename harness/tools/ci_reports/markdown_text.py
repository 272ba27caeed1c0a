"""Foreign texts as Markdown, without markup, mentions or HTML."""

from __future__ import annotations

import re

from harness.report.escaping import printable

__all__ = ["code_block", "code_span", "markdown"]

_MARKDOWN = re.compile(r"[\\`*_\[\]|~]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}


def markdown(text: str) -> str:
    """Return text for a paragraph or a table cell, without markup, mentions or HTML."""
    shown = printable(text)
    for character, entity in _ENTITIES.items():
        shown = shown.replace(character, entity)
    return _MARKDOWN.sub(r"\\\g<0>", shown)


def code_span(text: str) -> str:
    """Return monospaced text. It is safe in a table, where a bar would end the cell."""
    shown = printable(text)
    if "|" in shown or "`" in shown:
        return markdown(shown)
    return f"`{shown}`" if shown.strip() else ""


def code_block(text: str, language: str) -> str:
    """Return a fenced block of code or output. The fence is longer than any fence in the text."""
    lines = [printable(line) for line in text.splitlines()]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])
