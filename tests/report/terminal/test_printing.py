"""Tables on terminals of any width."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from harness.report.terminal.printing import Table

ROWS = [("name", "newest", "earlier"), ("a_longer_name", "1.5 nats", "")]


def aligned(rows: Sequence[tuple[str, ...]], width: int | None = None) -> list[str]:
    """The lines of a table on a terminal of this width."""
    return [text for text, _ in Table(rows).lines(width)]


def test_as_wide_as_the_widest() -> None:
    """A column is as wide as its widest cell. There are no spaces at the end."""
    assert aligned(ROWS) == ["  name           newest    earlier", "  a_longer_name  1.5 nats"]


def test_what_does_not_fit_follows_below() -> None:
    """Whole columns move to the next line, so no column is split."""
    assert aligned(ROWS, 30) == ["  name           newest", "      earlier", "  a_longer_name  1.5 nats"]
    assert aligned(ROWS, 5)[:3] == ["  name", "      newest", "      earlier"]


def test_the_last_cells_wrap_beside_the_others() -> None:
    """A long sentence stays in its column, and no word is broken."""
    rows = [("name", "text"), ("a", "one two three four five six seven-eight nine")]
    assert aligned(rows, 40) == [
        "  name  text",
        "  a     one two three four five six",
        "        seven-eight nine",
    ]


def test_cells_that_do_not_fit_into_one_line_have_lines_of_their_own() -> None:
    """The reader then sees where one cell ends and the next begins."""
    rows = [
        ("name", "loss 1.5, first loss 4.25, last loss 1", "bound"),
        ("a", "loss 1.5, first 4.25", "below the first"),
    ]
    assert aligned(rows, 36)[-2:] == ["  a     loss 1.5, first 4.25", "        below the first"]
    assert aligned(rows, 27)[-3:] == ["  a", "      loss 1.5, first 4.25", "      below the first"]


def test_the_lines_of_a_row_have_its_style() -> None:
    """Rows without a style are plain."""
    assert [style for _, style in Table(ROWS, ["dim"]).lines(30)] == ["dim", "dim", ""]


@given(st.lists(st.tuples(*[st.text(max_size=9)] * 3), min_size=1, max_size=5), st.none() | st.integers(1, 60))
def test_every_cell_is_shown(rows: list[tuple[str, str, str]], width: int | None) -> None:
    """Control characters in a cell are escaped."""
    shown = "\n".join(aligned(rows, width))
    assert all(line.isprintable() for line in shown.split("\n"))
    for word in (word for row in rows for cell in row if cell.isprintable() for word in cell.split()):
        assert word in shown


def test_a_note_stands_below_its_row() -> None:
    """It widens no column, and the rows below it stay aligned."""
    table = Table([("a", "b"), ("long name", "1"), ("c", "2")], notes=["", "what the second row means", ""])
    assert [text for text, _ in table.lines(None)] == [
        "  a          b",
        "  long name  1",
        "      what the second row means",
        "  c          2",
    ]
