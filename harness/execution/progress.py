"""The progress of a running trial, and whether its time is over.

A hanging subject is distinguished from a slow one. A step, a measurement, and each switch between the code of falsifier
and subject are progress. In the code of the subject, a trial that exceeds its limit ends

- as slow, at its next progress;
- as timed out, after a time without progress as long as the limit; but as slow if it waited for a CPU for half of its
  time, because then a hang cannot be distinguished.

So no trial takes longer than twice its limit, and a subject that reports progress forever ends at its limit. If the
limit is part of the claim, every trial ends there as timed out. A trial in the code of the falsifier does so too.

In a trial that runs commands, the limit applies to each command. Output and CPU time of a command are progress, because
a trainer on a busy machine can be silent for long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from harness.authoring.reports import Entered, Measured, Stepped, Working
from harness.base.vocabulary import Phase
from harness.execution.messages import Received
from harness.judging.observation import EndingKind

__all__ = ["Progress"]

_OF_A_COMMAND = " for each run (`seconds` under [command] of its TOML file)"


@final
@dataclass
class Progress:
    """The progress of one trial. Times are those of one clock, in seconds."""

    started: float
    limit: float
    is_claimed: bool = False
    """Whether the limit is part of the claim."""
    steps: int = 0
    measurements: int = 0
    returns: int = 0
    """How often the subject returned control to the falsifier, such as after each case of a search."""
    phase: Phase = Phase.START
    run: int = 0
    """The number of the current command; 0 without one."""
    said: str = ""
    """The last line of that command's output."""
    since: float = field(init=False)
    """When the limit started to count."""
    latest: float = field(init=False)

    def __post_init__(self) -> None:
        self.since = self.latest = self.started

    def hear(self, message: Received, now: float) -> None:
        """Process a message of the trial."""
        match message:
            case Stepped():
                self.steps += 1
            case Measured(values):
                self.measurements += len(values)
            case Entered(phase):
                self.returns += self.phase is Phase.SUBJECT and phase is Phase.FALSIFIER
                self.phase = phase
            case Working(run, said):
                if run != self.run:
                    self.run, self.since = run, now
                self.said = said
            case _:
                return
        self.latest = now

    def over(self, now: float, starved: float = 0.0) -> EndingKind | None:
        """Return how the trial must end now; None if it may continue.

        Args:
            starved: seconds for which a thread of the trial has waited for a CPU.
        """
        if now - self.since <= self.limit:
            return None
        if self.is_claimed:
            return EndingKind.TIMED_OUT
        if self.latest - self.since > self.limit:
            return EndingKind.SLOW
        if self.phase is not Phase.SUBJECT:
            return EndingKind.TIMED_OUT
        if now - self.latest <= self.limit:
            return None
        return EndingKind.SLOW if 2 * starved > now - self.started else EndingKind.TIMED_OUT

    def reason(self, kind: EndingKind, now: float) -> str:
        """Describe the limit and the progress until then."""
        done = f"{self.steps} steps, {self.measurements} measurements and {self.returns} returns of the subject"
        if self.run:
            last_line = f"; it said last: {self.said}" if self.said else "; it has said nothing"
            done = f"run {self.run} of the trainer, {done}{last_line}"
        limit = f"{self.limit:g} s{_OF_A_COMMAND if self.run else ''}"
        if kind is EndingKind.SLOW:
            state = "still at work" if self.latest - self.since > self.limit else "other work had the processors"
            return f"{done} in {now - self.since:.3g} s, and {state}; its limit is {limit}"
        is_still = self.phase is Phase.SUBJECT and not self.is_claimed
        still = f"; it made no progress for {now - self.latest:.3g} s" if is_still else ""
        return f"no end within its limit of {limit}, after {done}{still}"
