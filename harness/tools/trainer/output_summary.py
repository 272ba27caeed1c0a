"""The summary of a run's output: its steps, its losses, and its own totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.tools.trainer.kernel_summary import KernelTelling
from harness.tools.trainer.output_events import Event, EventKind

__all__ = ["MOST_STEPS", "StepListener", "Telling", "TooManySteps"]

MOST_STEPS = 1_000_000
"""Maximum steps of an output. More are a fault."""

_FROM_ZERO = "the output has a step 0: add first_step = 0 under [log] if this is the first optimizer step"
_FEWEST_COUNTED = 2
"""The number of printed steps from which a log counts as printing each step. A trainer may print a single one."""
_LONGEST_LINE = 500
_LONGEST_VALUE = 60

StepListener = Callable[[int, Mapping[str, float]], None]
"""Takes a step's number and the values of its line."""


class TooManySteps(RuntimeError):
    """A trainer's output has more than MOST_STEPS steps."""


@dataclass
class Telling:
    """The summary of a run's output so far, in the order of its lines.

    `on_step` gets a step when the next step begins or the output ends. A progress bar repeats a step, and its last line
    counts. By then most trainers have also written the checkpoint of the step.
    """

    on_step: StepListener
    first: int = 1
    """The number that the trainer gives to its first step; `on_step` counts from 1."""
    every: int = 1
    """The number of steps for which a line without a step's number stands."""
    steps: int = 0
    """How many different steps the output has."""
    newest: int = 0
    """The number of the last step in the output."""
    losses: list[float] = field(default_factory=list)
    told_steps: int | None = None
    """The total number of steps by the run's own summary."""
    initial_loss: float | None = None
    final_loss: float | None = None
    checkpoints: list[str] = field(default_factory=list)
    """The checkpoints that the output names: by a path or a step's number."""
    failed_saves: int = 0
    ran: dict[str, str] = field(default_factory=dict)
    out_of_memory: str = ""
    """The first line that says that GPU memory ran out."""
    kernels: KernelTelling = field(default_factory=KernelTelling)
    """The output about kernels and about loading weights onto the device."""
    unread: str = ""
    """The first step, count or loss that is not a number, as printed; empty if all are numbers."""
    disorder: str = ""
    """Why the steps of the output are not 1, 2, 3 and so on; empty if they are."""
    begins_at_zero: bool = False
    """Whether the output has a step 0, which is no step by the trainer's file: it may be the first one after all."""
    is_unheard: bool = True
    """Whether the output has had no event yet."""
    _is_numbered: bool = True
    _is_over: bool = False
    """Whether the output has stated the steps or seconds of the whole run."""
    _pending: tuple[int, dict[str, float]] | None = None

    def hear(self, event: Event) -> None:
        """Take one event."""
        self.is_unheard = False
        if event.kind is EventKind.STEP:
            self._step(event)
        elif event.kind is EventKind.SUMMARY:
            self._summary(event)
        elif event.kind is EventKind.CHECKPOINT:
            if len(self.checkpoints) < MOST_STEPS:
                self.checkpoints.append(event.values.get("path") or event.values.get("step", ""))
        elif event.kind is EventKind.FAILED_SAVE:
            self.failed_saves += 1
        elif event.kind is EventKind.RAN:
            self.ran.update({name: value for name, value in event.values.items() if value})
        elif event.kind is EventKind.OUT_OF_MEMORY:
            self.out_of_memory = self.out_of_memory or event.line[:_LONGEST_LINE]
        else:
            self.kernels.hear(event)

    def end(self) -> None:
        """End the output: pass on the last step. A summary's loss that is not finite replaces the loss of the steps."""
        self._hand_on()
        for position, loss in ((0, self.initial_loss), (-1, self.final_loss)):
            if self.losses and loss is not None and not math.isfinite(loss):
                self.losses[position] = loss

    @property
    def made(self) -> int | None:
        """The number of steps by the run's output: that of its summary, else the number of the last step."""
        return self.told_steps if self.told_steps is not None else self.newest or None

    @property
    def contradiction(self) -> str | None:
        """Two contradictory statements of the output; empty if they agree, None without two statements.

        If the output lists all steps from the first on, their number must be the summary's. The summary may have one
        more, because a pattern can miss a line. A log that leaves steps out contradicts nothing.
        """
        if self.told_steps is None or self.disorder or not self._is_numbered or self.steps < _FEWEST_COUNTED:
            return None
        if self.told_steps in (self.steps, self.steps + 1):
            return ""
        return f"it has a line for each step from 1 to {self.steps}, and says that {self.told_steps} were made"

    @property
    def unseen(self) -> str:
        """Why the output does not show every step; empty if it does."""
        if self.unread:
            return f"the output has {self.unread}, which is no number; see the trainer's pattern"
        if self.disorder:
            return self.disorder
        if self.steps == 0:
            return "the output has no step"
        if self.told_steps is not None and self.told_steps > self.steps:
            return f"the output has lines for {self.steps} steps, and says that {self.told_steps} were made"
        return ""

    def _summary(self, event: Event) -> None:
        self._is_over = self._is_over or not event.values.keys().isdisjoint(("steps", "seconds"))
        if "steps" in event.values:
            self.told_steps = event.whole("steps")
            self._expect("steps", event, self.told_steps)
        for name in ("initial_loss", "final_loss"):
            if name in event.values:
                value = event.number(name)
                self._expect(name, event, value)
                setattr(self, name, value)

    def _step(self, event: Event) -> None:
        if "step" in event.values:
            step = event.whole("step")
            self._expect("step", event, step)
            if step is None:
                return
            step += 1 - self.first
        else:
            step, self._is_numbered = self.newest + self.every, False
        if "loss" in event.values:
            self._expect("loss", event, event.number("loss"))
        values = {name: value for name in event.values if name != "step" and (value := event.number(name)) is not None}
        if self._pending is not None and self._pending[0] == step:
            self._pending[1].update(values)
            return
        self._hand_on()
        if not self.disorder and self.newest and (step == 1 or (self._is_over and not self._is_numbered)):
            self.disorder = f"the output holds two runs: after {self.newest} steps another one begins"
        if step == 0:
            self.begins_at_zero = True
            self.disorder = self.disorder or _FROM_ZERO
        if step != self.newest + 1 and not self.disorder:
            before = f"after step {self.newest} comes" if self.newest else "it begins with"
            self.disorder = (
                f"the output {'leaves steps out' if step > self.newest else 'goes back'}: {before} step {step}"
            )
        self.steps, self.newest = self.steps + 1, step
        if self.steps > MOST_STEPS:
            raise TooManySteps(f"the output has more than {MOST_STEPS} steps")
        self._pending = (step, values)

    def _hand_on(self) -> None:
        if self._pending is not None:
            (step, values), self._pending = self._pending, None
            if "loss" in values:
                self.losses.append(values["loss"])
            self.on_step(step, values)

    def _expect(self, name: str, event: Event, value: float | None) -> None:
        """Note a value that is not a number. Ignored silently, it could hide a failure."""
        if value is None and not self.unread:
            self.unread = f"{name} {event.values.get(name, '')[:_LONGEST_VALUE]!r}"
