"""What a trial has come to while it runs, and whether its time is over.

A subject that stands still is told apart from one that is slow. A step, a measurement, and each change between the code
of the falsifier and of the subject are progress. In the code of the subject, a trial that is over its limit

- ends at its next progress, as slow;
- ends as timed out once it has made none for as long as its limit.

So no trial takes longer than twice its limit, and a subject that reports progress for ever ends at its limit. If the
limit is part of the claim, every trial ends there as timed out. So does one in the code of the falsifier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from harness.authoring.reports import Entered, Measured, Stepped
from harness.base.vocabulary import Phase
from harness.execution.messages import Received
from harness.judging.observation import EndingKind

__all__ = ["Progress"]


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
    """How often the subject gave control back to the falsifier, as after each case of a search."""
    phase: Phase = Phase.START
    latest: float = field(init=False)

    def __post_init__(self) -> None:
        self.latest = self.started

    def hear(self, message: Received, now: float) -> None:
        """Take a message of the trial."""
        match message:
            case Stepped():
                self.steps += 1
            case Measured(values):
                self.measurements += len(values)
            case Entered(phase):
                self.returns += self.phase is Phase.SUBJECT and phase is Phase.FALSIFIER
                self.phase = phase
            case _:
                return
        self.latest = now

    def over(self, now: float) -> EndingKind | None:
        """How the trial has to end now; None if it may go on."""
        if now - self.started <= self.limit:
            return None
        if self.is_claimed:
            return EndingKind.TIMED_OUT
        if self.latest - self.started > self.limit:
            return EndingKind.SLOW
        is_still = now - self.latest > self.limit
        return EndingKind.TIMED_OUT if is_still or self.phase is not Phase.SUBJECT else None

    def reason(self, kind: EndingKind, now: float) -> str:
        """The limit, and what was reached until then, in words."""
        made = f"{self.steps} steps, {self.measurements} measurements and {self.returns} returns of the subject"
        if kind is EndingKind.SLOW:
            return f"{made} in {now - self.started:.3g} s, and still at work; its limit is {self.limit:g} s"
        is_still = self.phase is Phase.SUBJECT and not self.is_claimed
        still = f"; it stood still for {now - self.latest:.3g} s" if is_still else ""
        return f"no end within its limit of {self.limit:g} s, after {made}{still}"
