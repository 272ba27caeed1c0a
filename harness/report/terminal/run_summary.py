"""The summary of a run: the claims that did not PASS, the slowest, the tightest margins, and the totals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness.base.vocabulary import Outcome, Verdict
from harness.report.messages import number_text
from harness.report.messages.qualifiers import UNPROVEN
from harness.report.terminal.printing import Block, Table
from harness.report.terminal.run_text import COLOURS, TIGHTEST, clause_cells, nothing_ran, short_reason
from harness.running.events import ClaimFinished, RunFinished

__all__ = ["interrupted_text", "summary_lines", "totals_text"]


def summary_lines(finished: Sequence[ClaimFinished], slowest: int) -> Iterator[Block]:
    """Yield the summary of several claims: those that did not PASS with their reasons, the slowest, the tightest.

    Args:
        slowest: how many claims; 0 for all.
    """
    rows = [
        (UNPROVEN if record.verdict is Verdict.PASS else str(record.verdict), record.id, short_reason(record))
        for record in (one.record for one in finished)
        if record.verdict is not Verdict.PASS or not record.proven
    ]
    if rows:
        yield ""
        yield "Not a proven PASS", "bold"
        order = [Verdict.FAIL, Verdict.VOID, Verdict.NOT_MEASURED, UNPROVEN]
        rows.sort(key=lambda row: order.index(row[0]))
        yield Table(rows, [COLOURS.get(row[0], "yellow") for row in rows])
    ran = [one.record for one in finished if not nothing_ran(one.record)]
    if ran:
        ran.sort(key=lambda record: -record.seconds)
        yield ""
        yield "Slowest", "bold"
        yield Table([(record.id, number_text.duration(record.seconds)) for record in ran[: slowest or None]])
    margins = sorted(_margins(finished), key=lambda one: -one[0])[:TIGHTEST]
    if margins:
        yield ""
        yield "Tightest margins", "bold"
        yield Table([row for _, row in margins])
    yield ""


def _margins(finished: Iterable[ClaimFinished]) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Yield the tightest clause of each claim that passed, with its ratio."""
    for one in finished:
        clauses = {clause.id: clause for clause in one.record.clauses if clause.outcome is Outcome.PASS}
        near = [name for name in one.ratios if name in clauses]
        if near and one.record.verdict is Verdict.PASS:
            name = max(near, key=lambda clause: one.ratios[clause])
            yield one.ratios[name], (one.record.id, *clause_cells(clauses[name], one.ratios))


def interrupted_text(event: RunFinished) -> str:
    """Return what an interrupted run leaves."""
    wait = f" while waiting for {event.awaited}" if event.awaited else ""
    left = "what was measured is in the evidence above" if event.records else "nothing was measured"
    return f"interrupted{wait}: {left}"


def totals_text(declared: int, verdicts: list[str], seconds: float | None = None) -> str:
    """Return the last line of every summary: how many claims were declared, and their verdicts."""
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in ("PASS", "FAIL", "NOT_MEASURED", "VOID"))
    took = "" if seconds is None else f", in {number_text.duration(seconds)}"
    return f"{number_text.counted(declared, 'claim')} declared, {len(verdicts)} evaluated: {counts}{took}"
