"""The events of a run as lines. The terminal shows them, and so does a pipe.

A run of one claim writes what happens as it happens. Of several claims, which may run side by side, each is written
when it has its verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.base.vocabulary import Fate, Verdict
from harness.report.messages.number_text import rough
from harness.report.terminal.printing import Line, lines_of
from harness.report.terminal.run_summary import interrupted_text, summary_lines, totals_text
from harness.report.terminal.run_text import (
    COLOURS,
    claim_lines,
    limit_text,
    nothing_ran,
    plan_text,
    step_text,
    traceback_lines,
    trial_text,
    waiting_text,
)
from harness.running import events

__all__ = ["USUAL", "Lines", "Shown"]

_STEP_LINES = 5
"""Lines with steps that a trial prints in a pipe."""


@dataclass(frozen=True)
class Shown:
    """How much of a run is printed."""

    verbose: bool = False
    quiet: bool = False
    """Only claims that are not PASS, and the last line."""
    slowest: int = 5
    """How many claims the summary lists by their time; 0 for all."""


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
    """Whether a live view shows what runs, so that only its results need lines."""
    clock: Callable[[], float] = time.monotonic
    """The seconds since any moment."""
    _began: float = 0.0
    _total: int = 1
    _finished: list[events.ClaimFinished] = field(default_factory=list)
    _steps: dict[tuple[str, str], int | None] = field(default_factory=dict)
    _waiting: set[tuple[str, str]] = field(default_factory=set)
    """Claims and their trials that wait."""
    _passed_over: int = 0

    def __call__(self, event: events.Event) -> None:
        """Write the lines of one event."""
        match event:
            case events.ClaimPassedOver():
                self._passed_over += 1
            case events.RunStarted():
                self._total, self._began = len(event.claims), self.clock()
            case events.ClaimFinished():
                self._finish(event)
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
        """Write a line about a claim that runs. Among several, the line names the claim."""
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
            # The time of the run, with waits. The claim's own time, without them, is at the end of its line.
            place = f"[{len(self._finished)}/{self._total} after {rough(self.clock() - self._began)}]  "
        for line in lines_of(claim_lines(event, place, verbose=self.shown.verbose), self.width()):
            self.write(line)

    def _end(self, event: events.RunFinished) -> None:
        if self._total > 1 and not self.shown.quiet and any(not nothing_ran(one.record) for one in self._finished):
            for line in lines_of(summary_lines(self._finished, self.shown.slowest), self.width()):
                self.write(line)
        verdicts = [str(record.verdict) for record in event.records]
        seconds = event.seconds if self._total > 1 else None
        text = totals_text(event.declared + self._passed_over, verdicts, seconds)
        left = event.declared - len(event.records)
        unproven = sum(one.verdict is Verdict.PASS and not one.proven for one in event.records)
        if unproven and self.shown.quiet:  # no other line says so
            text += f"; unproven: {unproven}"
        ended = f"; {left} not run (--fail-fast)" if left and not event.interrupted else ""
        worst = next(
            (one for one in (Verdict.FAIL, Verdict.VOID, Verdict.NOT_MEASURED) if one in verdicts), Verdict.PASS
        )
        self.write((text + ended, f"bold {COLOURS[worst]}" if verdicts else "bold"))
        if event.interrupted:
            self.write((interrupted_text(event), "yellow"))
