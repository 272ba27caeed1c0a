"""What came of planted defects, as lines for a terminal: a table an operator, then the survivors with their patches."""

from __future__ import annotations

from collections.abc import Iterator

from harness.report.columns import aligned
from harness.report.escaping import printable
from harness.run.planting.results import DefectFate, Planted, Planting
from harness.run.planting.summary import Row, Summary

__all__ = ["listing", "planting_lines", "told"]

_HEAD = ("operator", "killed", "survived", "not measured", "not started", "equivalent", "not tried", "score")


def planting_lines(summary: Summary, width: int | None) -> Iterator[str]:
    """The table, the survivors, what was not measured, and what was not tried."""
    rows = [_cells(row) for row in (*summary.rows(), summary.total)]
    yield from aligned([_HEAD, *rows], width)
    for one in summary.of(DefectFate.SURVIVED):
        yield ""
        yield printable(f"survived: {one.defect.id}")
        yield from (printable(line) for line in one.patch.splitlines())
    for one in summary.of(DefectFate.NOT_MEASURED):
        yield ""
        yield printable(f"not measured: {one.defect.id}: {one.reason}")
        yield from (printable(line) for line in one.patch.splitlines())
    yield ""
    for planting in summary.plantings:
        yield from _remarks(planting)


def listing(planting: Planting) -> Iterator[str]:
    """Every defect with its lines before and after, and the author's reason for an equivalent one."""
    if planting.obstacle:
        yield from _remarks(planting)
        return
    yield printable(f"{planting.claim}: {_reached(planting)}")
    for one in planting.defects:
        mark = f"  (equivalent: {planting.equivalent[one.id]})" if one.id in planting.equivalent else ""
        yield printable(f"  {one.id}{mark}")
        yield from (printable(f"    - {line.strip()}") for line in one.before.splitlines())
        yield from (printable(f"    + {line.strip()}") for line in one.after.splitlines())


def told(claim: str, one: Planted, left: int) -> str:
    """One line about a defect that was tried."""
    detail = ", ".join(one.clauses) or one.reason.partition("\n")[0]
    return printable(f"{claim}: {one.fate} {one.defect.id}{f' ({detail})' if detail else ''}, {left} left")


def _remarks(planting: Planting) -> Iterator[str]:
    claim = planting.claim
    if planting.obstacle:
        yield printable(f"{claim}: nothing was planted: {planting.obstacle}")
        return
    yield printable(f"{claim}: {_reached(planting)}; {len(planting.untried)} were not tried")
    if planting.untried:
        yield printable(f"{claim}: run the same command again; it tries those that are left")
    for entry in planting.unmatched:
        yield printable(f"{claim}: the equivalent defect {entry.after!r} in {entry.file} matches no defect; remove it")


def _reached(planting: Planting) -> str:
    return f"{len(planting.defects)} defects on the lines that the {planting.profile} profile reaches"


def _cells(row: Row) -> tuple[str, ...]:
    counts = (row.killed, row.survived, row.not_measured, row.not_started, row.equivalent, row.untried)
    return (row.operator, *map(str, counts), "" if row.score is None else f"{row.score:.1%}")
