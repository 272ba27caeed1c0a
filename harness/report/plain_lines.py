"""A run as plain lines of text, for pipes and logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.report import number_text
from harness.report.run_texts import claim_lines, interrupted_text, plan_line, step_text, traceback_lines, trial_text
from harness.run.events import (
    SUBJECT,
    ClaimFinished,
    ClaimPassedOver,
    ClaimPlanned,
    ClaimWaiting,
    Event,
    RunFinished,
    TrialFinished,
    TrialStarted,
    TrialStep,
)

__all__ = ["PlainLines"]

_STEP_LINES = 5
"""How many lines of steps a trial prints in a pipe."""


@dataclass
class PlainLines:
    """Prints plain lines."""

    write: Callable[[str], None]
    verbose: bool
    _steps: dict[str, int | None] = field(default_factory=dict)
    _passed_over: int = 0

    def __call__(self, event: Event) -> None:
        """Take an event."""
        match event:
            case ClaimPassedOver():
                self._passed_over += 1
            case ClaimPlanned():
                self.write(f"{event.contract.id}  {event.contract.title}")
                if not event.obstacle:
                    self.write(f"  {plan_line(event)}")
            case ClaimWaiting():
                self.write(f"  waiting for {', '.join(event.holders)}")
            case TrialStarted():
                self._steps[event.trial] = event.steps
                if self.verbose:
                    self.write(f"  {event.trial}  started")
            case TrialStep() if self._is_shown(event):
                self.write(f"  {event.trial}  {step_text(event, self._steps[event.trial])}")
            case TrialFinished():
                self.write(f"  {event.trial}  {trial_text(event)}")
                for line in traceback_lines(event, self.verbose):
                    self.write(line)
            case ClaimFinished():
                for line in claim_lines(event, self.verbose):
                    self.write(line)
            case RunFinished():
                verdicts = [str(record.verdict) for record in event.records]
                self.write(number_text.denominator(event.declared + self._passed_over, verdicts))
                if event.interrupted:
                    self.write(interrupted_text(event))
            case _:
                pass

    def _is_shown(self, event: TrialStep) -> bool:
        total = self._steps.get(event.trial)
        every = max(1, (total or 50) // _STEP_LINES)
        if total and event.step > total:  # somebody else's trainer, which goes on: told ever more rarely
            every = total * 2 ** ((event.step - 1) // total).bit_length()
        return self.verbose or (event.trial == SUBJECT and (event.step % every == 0 or event.step == total))
