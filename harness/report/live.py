"""The live view on a terminal: one line for each trial, then the tables of the claim."""

from __future__ import annotations

import atexit
from typing import IO

from rich import box
from rich.console import Console
from rich.live import Live as RichLive
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.judging.record import Record
from harness.report.escaping import printable
from harness.report.run_text import (
    CLAUSE_HEAD,
    bundle_text,
    clause_cells,
    hidden_text,
    idle_text,
    interrupted_text,
    nothing_ran,
    plan_line,
    shown_clauses,
    step_text,
    totals_text,
    traceback_lines,
    trial_text,
    unjudged_text,
    verdict_text,
)
from harness.run.events import (
    ClaimFinished,
    ClaimPassedOver,
    ClaimPlanned,
    ClaimWaiting,
    Event,
    Remarked,
    RunFinished,
    TrialFinished,
    TrialStarted,
    TrialStep,
)

__all__ = ["Live"]

_COLOURS = {
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.NOT_MEASURED: "yellow",
    Verdict.VOID: "magenta",
    Fate.KILLED: "green",
    Fate.SURVIVED: "magenta",
    Fate.MISATTRIBUTED: "magenta",
    Fate.INCONCLUSIVE: "yellow",
    Fate.NOT_RUN: "dim",
    Fate.INTERRUPTED: "yellow",
}


class Live:
    """Draws the events of a run. rich respects `NO_COLOR`."""

    def __init__(self, stream: IO[str], verbose: bool) -> None:
        self._console = Console(file=stream, highlight=False)
        self._verbose = verbose
        self._live: RichLive | None = None
        self._running: dict[str, tuple[int | None, TrialStep | None]] = {}
        self._passed_over = 0
        atexit.register(self._stop)  # shows the cursor again, however the run ends

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case ClaimPassedOver():
                self._passed_over += 1
            case ClaimPlanned():
                contract = event.contract
                self._console.print(f"[bold]{escape(contract.id)}[/]  {escape(contract.title)}")
                if event.obstacle:
                    return
                self._console.print(Text(f"  {plan_line(event)}", style="dim"))
                self._live = RichLive(
                    console=self._console, refresh_per_second=8, transient=True, get_renderable=self._table
                )
                self._live.start()
            case ClaimWaiting():
                self._console.print(f"  waiting for {escape(', '.join(event.holders))}")
            case TrialStarted():
                self._running[event.trial] = (event.steps, None)
            case TrialStep():
                total, _ = self._running.get(event.trial, (None, None))
                self._running[event.trial] = (total, event)
                if self._verbose:
                    self._console.print(f"  {escape(event.trial)}  {escape(printable(step_text(event, total)))}")
            case TrialFinished():
                self._running.pop(event.trial, None)
                word = event.mutant.fate if event.mutant else event.judgment.outcome
                self._console.print(
                    Text.assemble("  ", f"{event.trial}  ", (printable(trial_text(event)), _COLOURS[word]))
                )
                for line in traceback_lines(event, self._verbose):
                    self._console.print(Text(printable(line), style="dim"))
            case Remarked():
                self._console.print(Text(f"  remark: {printable(event.text)}", style="yellow"))
            case ClaimFinished():
                self._stop()
                self._claim(event)
            case RunFinished():
                self._stop()
                verdicts = [str(record.verdict) for record in event.records]
                self._console.print(totals_text(event.declared + self._passed_over, verdicts))
                if event.interrupted:
                    self._console.print(Text(interrupted_text(event), style="yellow"))
            case _:
                pass

    def _stop(self) -> None:
        self._running.clear()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 1))
        for name, (total, step) in list(self._running.items()):
            done = step.step if step else 0
            bar = ProgressBar(total=total, completed=done, width=16) if total else Spinner("dots")
            text = printable(step_text(step, total)) if step else "starting"
            table.add_row(" ", Text(name), bar, Text(text, overflow="ellipsis", no_wrap=True))
        return table

    def _claim(self, event: ClaimFinished) -> None:
        if not nothing_ran(event.record):
            self._clauses(event.record)
        colour = _COLOURS.get(event.record.verdict, "green")
        self._console.print(Text(printable(verdict_text(event.record)), style=f"bold {colour}"))
        if idle := idle_text(event.record):
            self._console.print(Text(f"  {printable(idle)}", style="dim"))
        self._console.print(Text(bundle_text(event)))

    def _clauses(self, record: Record) -> None:
        shown = shown_clauses(record, self._verbose)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in CLAUSE_HEAD:
            table.add_column(title, overflow="fold")
        for clause in shown:
            name, outcome, measured, bound = map(printable, clause_cells(clause))
            table.add_row(Text(name), Text(outcome, style=_COLOURS[clause.outcome]), Text(measured), Text(bound))
        self._console.print(table)
        if hidden := hidden_text(record, len(shown)):
            self._console.print(Text(f"  {hidden}", style="dim"))
        if unjudged := unjudged_text(record):
            self._console.print(Text(f"  {unjudged}", style="dim"))
