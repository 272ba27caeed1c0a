"""Rows of cells in columns, for terminals of any width."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence

from harness.report.escaping import printable

__all__ = ["aligned", "terminal_width"]


def terminal_width() -> int | None:
    """Return the width of the terminal in columns, or None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def aligned(rows: Sequence[Sequence[str]], width: int | None = None, indent: int = 2) -> Iterator[str]:
    """Yield the rows with all cells of a column padded to the same width.

    Args:
        rows: lists of cells, all of the same length.
        width: of the terminal. Columns that do not fit go to a second line. None means no limit.
        indent: spaces before a row. A second line has twice as many and two more.
    """
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    fitting = len(widths)
    while width is not None and fitting > 1 and indent + sum(widths[:fitting]) + 2 * (fitting - 1) > width:
        fitting -= 1
    for row in shown:
        cells = [f"{cell:<{wide}}" for cell, wide in zip(row, widths, strict=True)]
        yield " " * indent + "  ".join(cells[:fitting]).rstrip()
        rest = "  ".join(cells[fitting:]).rstrip()
        if rest:
            yield " " * (2 * indent + 2) + rest
