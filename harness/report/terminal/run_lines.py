"""Formats the events of a run as lines, for a terminal or a pipe.

With one claim, events are written immediately. With several claims, which may run in parallel, each is written when
it has its verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract import Contract
from harness.report.messages import number_text
from harness.report.messages.number_text import rough
from harness.report.messages.qualifiers import UNPROVEN
from harness.report.terminal.printing import COLOURS, Block, Line, Table, lines_of
from harness.report.terminal.run_text import (
    TIGHTEST,
    claim_lines,
    clause_cells,
    limit_text,
    nothing_ran,
    plan_text,
    short_reason,
    step_text,
    traceback_lines,
    trial_text,
    waiting_text,
)
from harness.running import events
from harness.running.events import ClaimFinished, RunFinished

__all__ = ["USUAL", "Lines", "Shown", "interrupted_text", "summary_lines", "totals_text"]

_STEP_LINES = 5
"""Maximum lines with steps of a trial in a pipe."""


@dataclass(frozen=True)
class Shown:
    """How much of a run is printed."""

    verbose: bool = False
    quiet: bool = False
    """Only claims that are not PASS, and the last line."""
    slowest: int = 5
    """Number of slowest claims in the summary; 0 for all."""


USUAL = Shown()
"""The output without options."""


@dataclass
class Lines:
    """Writes the events of a run as lines."""

    write: Callable[[Line], None]
    shown: Shown = USUAL
    width: Callable[[], int | None] = lambda: None
    """The width of the terminal, in columns. None means no limit."""
    is_live: bool = False
    """Whether a live view shows running trials, so that only results are written."""
    clock: Callable[[], float] = time.monotonic
    """A monotonic clock in seconds."""
    _began: float = 0.0
    _total: int = 1
    _finished: list[events.ClaimFinished] = field(default_factory=list)
    _steps: dict[tuple[str, str], int | None] = field(default_factory=dict)
    _waiting: set[tuple[str, str]] = field(default_factory=set)
    """Claims and their trials that wait."""
    _passed_over: int = 0
    _contracts: dict[str, Contract] = field(default_factory=dict)

    def __call__(self, event: events.Event) -> None:
        """Write the lines of one event."""
        if isinstance(event, events.ClaimPlanned):
            self._contracts[event.contract.id] = event.contract
        match event:
            case events.ClaimPassedOver():
                self._passed_over += 1
            case events.RunStarted():
                self._total, self._began = len(event.claims), self.clock()
            case events.ClaimFinished():
                self._finish(event)
                self._contracts.pop(event.record.id, None)
            case events.RunFinished():
                self._end(event)
            case _ if self.shown.quiet:
                pass
            case events.ClaimPlanned() if not (self.is_live and self._total > 1):
                if self._total == 1:
                    self.write((f"{event.contract.id}  {event.contract.title}", ""))
                if not event.obstacle:
                    self._line(event.contract.id, plan_text(event), "dim")
                    if self.shown.verbose:
                        self._line(event.contract.id, limit_text(event), "dim")
            case events.ClaimWaiting() if not self.is_live:
                if event.id not in {claim for claim, _ in self._waiting}:  # the holders of a long wait change
                    self._line(event.id, waiting_text(event.holders))
                self._waiting.add((event.id, event.trial))
            case events.TrialStarted():
                self._waiting.discard((event.id, event.trial))
                self._steps[event.id, event.trial] = event.steps
                if self.shown.verbose:
                    self._line(event.id, f"{event.trial}  started")
            case events.TrialStep() if self._is_shown(event):
                self._line(event.id, f"{event.trial}  {step_text(event, self._steps.get((event.id, event.trial)))}")
            case events.TrialFinished():
                self._waiting.discard((event.id, event.trial))
                self._trial(event)
            case events.Remarked():
                self._line(event.id, f"remark: {event.text}", "yellow")
            case _:
                pass

    def _line(self, claim: str, text: str, style: str = "") -> None:
        """Write a line about a running claim. With several claims, the line names it."""
        self.write((f"{claim if self._total > 1 else ''}  {text}", style))

    def _is_shown(self, event: events.TrialStep) -> bool:
        if self.shown.verbose or self.is_live or self._total > 1 or event.trial != events.SUBJECT:
            return self.shown.verbose
        total = self._steps.get((event.id, event.trial))
        every = max(1, (total or 50) // _STEP_LINES)
        if (
            total and event.step > total
        ):  # an external trainer made more steps than requested: print them ever more rarely
            every = total * 2 ** ((event.step - 1) // total).bit_length()
        return event.step % every == 0 or event.step == total

    def _trial(self, event: events.TrialFinished) -> None:
        word = event.mutant.fate if event.mutant else event.judgment.outcome
        expected = word in (Fate.KILLED, Verdict.PASS)
        if self.shown.verbose or not (self._total > 1 or (self.is_live and expected)):
            self._line(event.id, f"{event.trial}  {trial_text(event)}", COLOURS[word])
        for line in traceback_lines(event, self.shown.verbose):
            self._line(event.id, line, "dim")

    def _finish(self, event: events.ClaimFinished) -> None:
        self._finished.append(event)
        if self.shown.quiet and event.record.verdict is Verdict.PASS:
            return
        place = ""
        if self._total > 1:
            # The time of the run includes waits; the time at the end of the claim's line does not.
            place = f"[{len(self._finished)}/{self._total} after {rough(self.clock() - self._began)}]  "
        lines = claim_lines(event, place, self._contracts.get(event.record.id), verbose=self.shown.verbose)
        for line in lines_of(lines, self.width()):
            self.write(line)

    def _end(self, event: events.RunFinished) -> None:
        if self._total > 1 and not self.shown.quiet and any(not nothing_ran(claim.record) for claim in self._finished):
            for line in lines_of(summary_lines(self._finished, self.shown.slowest), self.width()):
                self.write(line)
        verdicts = [str(record.verdict) for record in event.records]
        seconds = event.seconds if self._total > 1 else None
        text = totals_text(event.declared + self._passed_over, verdicts, seconds)
        left = event.declared - len(event.records)
        unproven = sum(record.verdict is Verdict.PASS and not record.proven for record in event.records)
        if unproven and self.shown.quiet:  # no other line says so
            text += f"; unproven: {unproven}"
        ended = f"; {left} not run (--fail-fast)" if left and not event.interrupted else ""
        worst = next(
            (verdict for verdict in (Verdict.FAIL, Verdict.VOID, Verdict.NOT_MEASURED) if verdict in verdicts),
            Verdict.PASS,
        )
        self.write((text + ended, f"bold {COLOURS[worst]}" if verdicts else "bold"))
        if event.interrupted:
            self.write((interrupted_text(event), "yellow"))


def summary_lines(finished: Sequence[ClaimFinished], slowest: int) -> Iterator[Block]:
    """Yield the summary of several claims: those that did not PASS with their reasons, the slowest, the tightest.

    Args:
        slowest: how many claims; 0 for all.
    """
    rows = [
        (UNPROVEN if record.verdict is Verdict.PASS else str(record.verdict), record.id, short_reason(record))
        for record in (claim.record for claim in finished)
        if record.verdict is not Verdict.PASS or not record.proven
    ]
    if rows:
        yield ""
        yield "Not a proven PASS", "bold"
        order = [Verdict.FAIL, Verdict.VOID, Verdict.NOT_MEASURED, UNPROVEN]
        rows.sort(key=lambda row: order.index(row[0]))
        yield Table(rows, [COLOURS.get(row[0], "yellow") for row in rows])
    ran = [claim.record for claim in finished if not nothing_ran(claim.record)]
    if ran:
        ran.sort(key=lambda record: -record.seconds)
        yield ""
        yield "Slowest", "bold"
        yield Table([(record.id, number_text.duration(record.seconds)) for record in ran[: slowest or None]])
    margins = sorted(_margins(finished), key=lambda margin: -margin[0])[:TIGHTEST]
    if margins:
        yield ""
        yield "Tightest margins", "bold"
        yield Table([row for _, row in margins])
    yield ""


def _margins(finished: Iterable[ClaimFinished]) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Yield the tightest clause of each claim that passed, with its ratio."""
    for claim in finished:
        clauses = {clause.id: clause for clause in claim.record.clauses if clause.outcome is Outcome.PASS}
        near = [name for name in claim.ratios if name in clauses]
        if near and claim.record.verdict is Verdict.PASS:
            name = max(near, key=lambda clause: claim.ratios[clause])
            yield claim.ratios[name], (claim.record.id, *clause_cells(clauses[name], claim.ratios))


def interrupted_text(event: RunFinished) -> str:
    """Describe the results of an interrupted run."""
    wait = f" while waiting for {event.awaited}" if event.awaited else ""
    left = "what was measured is in the evidence above" if event.records else "nothing was measured"
    return f"interrupted{wait}: {left}"


def totals_text(declared: int, verdicts: list[str], seconds: float | None = None) -> str:
    """Return the last line of a summary: the numbers of declared claims and of verdicts."""
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in ("PASS", "FAIL", "NOT_MEASURED", "VOID"))
    took = "" if seconds is None else f", in {number_text.duration(seconds)}"
    return f"{number_text.counted(declared, 'claim')} declared, {len(verdicts)} evaluated: {counts}{took}"
