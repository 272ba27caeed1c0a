"""Texts that others wrote, made harmless for where they are shown.

A claim's title, a subject's exception, a file's name: whatever a trial could say reaches terminals, XML and Markdown.
"""

from __future__ import annotations

import re

__all__ = ["code_block", "code_span", "markdown", "printable"]

_MARKDOWN = re.compile(r"[\\`*_\[\]|~]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}


def printable(text: str) -> str:
    """One line without characters that steer a terminal, reorder text, or that XML forbids; each is written out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def markdown(text: str) -> str:
    """Text inside a paragraph or a cell of a table: nothing in it is markup, a mention or HTML."""
    shown = printable(text)
    for character, entity in _ENTITIES.items():
        shown = shown.replace(character, entity)
    return _MARKDOWN.sub(r"\\\g<0>", shown)


def code_span(text: str) -> str:
    """Text in a monospaced face, also inside a table, where a bar would end the cell."""
    shown = printable(text)
    if "|" in shown or "`" in shown:
        return markdown(shown)
    return f"`{shown}`" if shown.strip() else ""


def code_block(text: str, language: str = "") -> str:
    """Lines of code or output, whatever fences they contain."""
    lines = [printable(line) for line in text.splitlines()]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])
