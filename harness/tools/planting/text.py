"""The fates of planted defects, as lines for a terminal: tables by operator and file, then the survivors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.report.terminal.printing import Block, Table
from harness.tools.planting.results import DefectFate, Planted, Planting, Reach, Row

__all__ = ["fate_line", "planting_lines"]

_HEAD = ("killed", "(crashed)", "survived", "not measured", "not started", "equivalent", "not tried", "score")
_SCORED = ("killed", "survived")


def planting_lines(planting: Planting) -> Iterator[Block]:
    """Yield the tables without columns of zeros, the survivors, what was not measured, and what was not tried."""
    tables = (("operator", list(planting.operators())), ("file", list(planting.files())))
    for head, rows in tables if planting.planted else ():
        yield Table(_without_zeros([(head, *_HEAD), *map(_cells, [*rows, planting.total])]))
    for fate, word in ((DefectFate.SURVIVED, "survived"), (DefectFate.NOT_MEASURED, "not measured")):
        for planted in planting.of(fate):
            yield ""
            yield f"{word}: {planted.defect.id}"
            yield from _details(planted)
    yield ""
    yield from _remarks(planting)
    if untried := planting.total.untried:
        yield f"{untried} of the defects were not tried by all claims that reach them; the same command tries the rest"
    if survived := planting.total.survived:
        them = "it" if survived == 1 else "them"
        yield (
            f"{survived} survived: make a falsifier see {them}, or mark {them} as equivalent "
            '(docs/planting.md, "What to do with a survivor")'
        )


def fate_line(planted: Planted, left: int) -> str:
    """Return a line about a defect with a known fate."""
    by = planted.decisive
    detail = ""
    if by is not None:
        detail = f" ({by.claim}: {', '.join(by.clauses) or by.reason.partition(chr(10))[0] or 'PASS'})"
    return f"{planted.fate} {planted.defect.id}{detail}, {left} left"


def _details(planted: Planted) -> Iterator[str]:
    for attempt in planted.attempts:
        reason = attempt.reason.partition("\n")[0]
        yield f"{attempt.claim}: {attempt.fate}{f' ({reason})' if reason else ''}"
    if planted.missed:
        yield f"reason: {planted.missed}"
    yield from planted.patch.splitlines()


def _remarks(planting: Planting) -> Iterator[str]:
    for reach in planting.claims:
        yield from _of_claim(reach)
    for name in planting.beyond:
        yield f"not tried: {name}: no claim imports the file"
    if planting.found:
        yield f"the claims reach {planting.found} defects; {len(planting.planted)} of them are in the sample"


def _of_claim(reach: Reach) -> Iterator[str]:
    if reach.obstacle:
        yield f"{reach.claim}: nothing was planted: {reach.obstacle}"
    else:
        yield f"{reach.claim}: {len(reach.defects)} defects on the lines that the {reach.profile} profile reaches"
    for entry in reach.unmatched:
        yield f"{reach.claim}: the entry {entry.after!r} for {entry.file} matches no source line; remove it"


def _without_zeros(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return a table without the columns of zeros, except those that make the score."""
    columns = [column for column in zip(*rows, strict=True) if column[0] in _SCORED or set(column[1:]) != {"0"}]
    return list(zip(*columns, strict=True))


def _cells(row: Row) -> tuple[str, ...]:
    counts = (row.killed, row.crashed, row.survived, row.not_measured, row.not_started, row.equivalent, row.untried)
    return (row.name, *map(str, counts), "" if row.score is None else f"{row.score:.1%}")
