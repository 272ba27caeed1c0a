"""Formats lines and tables for terminals of any width. Words are not broken; one that is too wide has its own line.

tell_all(["the claims", Table([("claim", "status"), *rows])])
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import IO, Any

import click

from harness.base import strictjson
from harness.base.redaction import redactor
from harness.base.vocabulary import Fate, Status, Verdict
from harness.report.escaping import printable

__all__ = [
    "COLOURS",
    "Block",
    "Line",
    "Table",
    "discard_unwritten",
    "lines_of",
    "styled",
    "tell",
    "tell_all",
    "tell_json",
    "terminal_width",
    "wrapped",
]

COLOURS: Mapping[str, str] = {
    **dict.fromkeys((Status.DISCHARGED, Verdict.PASS, Fate.KILLED), "green"),
    **dict.fromkeys((Status.FALSIFIED, Verdict.FAIL), "red"),
    **dict.fromkeys((Status.STALE, Verdict.NOT_MEASURED, Fate.INCONCLUSIVE, Fate.INTERRUPTED), "yellow"),
    **dict.fromkeys((Status.UNRUN, Verdict.VOID, Fate.SURVIVED, Fate.MISATTRIBUTED), "magenta"),
    Status.PARTIAL: "cyan",
    Fate.NOT_RUN: "dim",
}
"""The colour of each status, verdict, outcome and fate."""
_NARROWEST = 24
"""Minimum columns for the last cells of a row. With less room they go to a separate line."""


def terminal_width(stream: IO[str] | None = None) -> int | None:
    """Return the width of the terminal in columns, or None if a stream, by default standard output, is no terminal."""
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else None


def wrapped(text: str, width: int | None, hanging: int | None = None) -> list[str]:
    """Return a line as lines that fit, broken at spaces.

    Args:
        width: of the terminal. None means no limit.
        hanging: spaces before further lines; by default, and if it leaves too little room, two more than before the
            first.
    """
    if width is None or len(text) <= width:
        return [text]
    indent = len(text) - len(text.lstrip(" "))
    most = max(width // 2, width - _NARROWEST)
    further = hanging if hanging is not None and hanging <= most else min(indent + 2, width // 2)
    return textwrap.wrap(
        text[indent:],
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * further,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    ) or [""]


Line = tuple[str, str]
"""A text, and its style (see `styled`)."""


@dataclass(frozen=True)
class Table:
    """Rows of cells. All cells of a column are padded to the same width."""

    rows: Sequence[Sequence[str]]
    """All of the same length."""
    styles: Sequence[str] = ()
    """The style of each row. Rows without one are plain."""
    indent: int = 2
    """Spaces before a row. A further line of the row has at least twice as many and two more."""
    notes: Sequence[str] = ()
    """Text below each row; empty for none."""

    def lines(self, width: int | None) -> Iterator[Line]:
        """Yield the lines of the table on a terminal of this width. None means no limit.

        Columns that do not fit go to further lines, each to its own if they do not fit into one.
        """
        for lines, style, note in zip_longest(self._laid_out(width), self.styles, self.notes, fillvalue=""):
            yield from ((line, style) for line in lines)
            if note:
                yield f"{' ' * (2 * self.indent + 2)}{note}", ""

    def _laid_out(self, width: int | None) -> Iterator[Sequence[str]]:
        """Yield the lines of each row."""
        texts = [[printable(cell) for cell in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        starts = [self.indent + sum(widths[:column]) + 2 * column for column in range(len(widths) + 1)]
        fitting = len(widths)
        while width is not None and fitting > 1 and starts[fitting] - 2 > width:
            fitting -= 1
        for row in texts:
            cells = [f"{cell:<{wide}}" for cell, wide in zip(row, widths, strict=True)]
            line = " " * self.indent + "  ".join(cells[:fitting]).rstrip()
            left = [cell for cell in (cell.strip() for cell in row[fitting:]) if cell]
            rest, start, below = "  ".join(left), starts[fitting], 2 * self.indent + 2
            if width is not None and rest and width - start >= _NARROWEST and _fits(rest, width, start):
                first, *further = [rest] if start + len(rest) <= width else left
                lines = wrapped(f"{line:<{start}}{first}", width, start)
            else:
                start, further = below, [rest] if rest and (width is None or below + len(rest) <= width) else left
                lines = wrapped(line, width, below)
            yield [*lines, *(part for cell in further for part in wrapped(" " * start + cell, width, start))]


Block = str | Line | Table
"""A part of a command's output. A plain text is a line without a style."""


def lines_of(blocks: Iterable[Block], width: int | None = None) -> Iterator[Line]:
    """Yield the lines of blocks. Only tables are laid out for the width; None means no limit."""
    for block in blocks:
        if isinstance(block, Table):
            yield from block.lines(width)
        else:
            yield (block, "") if isinstance(block, str) else block


def _fits(text: str, width: int, start: int) -> bool:
    """Whether every word fits between a column and the width."""
    return max(map(len, text.split())) <= width - start


def styled(text: str, style: str) -> str:
    """Return a text with the escape sequences of a style: words such as "bold red" and "dim"; empty for none."""
    *effects, colour = style.split() or [""]
    if colour in ("bold", "dim"):
        effects, colour = [*effects, colour], ""
    return click.style(text, fg=colour or None, bold="bold" in effects or None, dim="dim" in effects or None)


def tell(text: str, style: str = "", *, word: str = "", err: bool = False, hanging: int | None = None) -> None:
    """Print a line, wrapped at spaces on a terminal. Control characters are escaped, including newlines.

    Args:
        style: of the text, or of `word` only, where it stands first. click removes it if the output is no terminal.
        hanging: see `wrapped`.
    """
    for part in wrapped(printable(text), terminal_width(sys.stderr if err else sys.stdout), hanging):
        if not word:
            part = styled(part, style) if style else part
        elif word in part:
            part, word = part.replace(word, styled(word, style), 1), "\0"
        click.echo(part, err=err)


def tell_all(blocks: Iterable[Block], *, err: bool = False) -> None:
    """Print blocks for the width of the terminal."""
    for text, style in lines_of(blocks, terminal_width(sys.stderr if err else sys.stdout)):
        tell(text, style, err=err)


def tell_json(document: Any) -> None:
    """Print a JSON document without secrets, in ASCII, because file names may not be UTF-8.

    What is not finite has a name.
    """
    click.echo(json.dumps(strictjson.tag_nonfinite(redactor().mask_json(document)), indent=2, allow_nan=False))


def discard_unwritten(stream: IO[str]) -> None:
    """Discard the unwritten rest of a stream that cannot take it. Python would write it at exit, with an error."""
    try:
        stream.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
