"""What a run's output comes to: its steps, its losses, and what it says of itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.external.kernel_summary import KernelTelling
from harness.external.output_events import Event, EventKind

__all__ = ["MOST_STEPS", "StepListener", "Telling", "TooManySteps"]

MOST_STEPS = 1_000_000
"""Steps that are told apart; whoever prints more floods us."""

_LONGEST_LINE = 500
_LONGEST_VALUE = 60

StepListener = Callable[[int, Mapping[str, float]], None]
"""Takes a step's number and the values that its line told."""


class TooManySteps(RuntimeError):
    """A trainer tells of more steps than anybody could have asked for."""


@dataclass
class Telling:
    """All that a run told, in the order of its lines.

    A step is handed to `on_step` when the next one is told or the output ends: a progress bar says the same step again
    and again, and what it says last counts; by then, too, a checkpoint of the step has been written by all but trainers
    that save in the background.
    """

    on_step: StepListener
    first: int = 1
    """The number that the trainer gives to its first step; `on_step` counts from 1."""
    steps: int = 0
    """How many different steps were told."""
    newest: int = 0
    """The number of the last step that was told."""
    losses: list[float] = field(default_factory=list)
    told_steps: int | None = None
    """How many steps the run says it made, all in all."""
    initial_loss: float | None = None
    final_loss: float | None = None
    checkpoints: list[str] = field(default_factory=list)
    """What was said to be saved: a path, or a step's number."""
    failed_saves: int = 0
    ran: dict[str, str] = field(default_factory=dict)
    out_of_memory: str = ""
    """The first line that says so."""
    kernels: KernelTelling = field(default_factory=KernelTelling)
    """What was said of kernels, and of putting weights on the device."""
    unread: str = ""
    """The first step, count or loss that is no number, as it was told; empty where each is one."""
    disorder: str = ""
    """Why the steps that were told are not all that were made; empty where they are 1, 2, 3 and so on."""
    _pending: tuple[int, dict[str, float]] | None = None

    def hear(self, event: Event) -> None:
        """Take one event."""
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
        """The output is over: hand on the last step, and take a loss that is not finite over what its steps said."""
        self._hand_on()
        for position, loss in ((0, self.initial_loss), (-1, self.final_loss)):
            if self.losses and loss is not None and not math.isfinite(loss):
                self.losses[position] = loss

    @property
    def made(self) -> int | None:
        """How many steps were made by the run's own account: its summary's, else the last step's number."""
        return self.told_steps if self.told_steps is not None else self.newest or None

    @property
    def unseen(self) -> str:
        """Why not every step that was made was seen; empty where each was."""
        if self.unread:
            return f"the output tells of {self.unread}, which is no number; see the trainer's pattern"
        if self.disorder:
            return self.disorder
        if self.steps == 0:
            return "the output tells of no step"
        if self.told_steps is not None and self.told_steps > self.steps:
            return f"the output tells of {self.steps} steps one by one, and of {self.told_steps} in all"
        return ""

    def _summary(self, event: Event) -> None:
        if "steps" in event.values:
            self.told_steps = event.whole("steps")
            self._expect("steps", event, self.told_steps)
        for name in ("initial_loss", "final_loss"):
            if name in event.values:
                value = event.number(name)
                self._expect(name, event, value)
                setattr(self, name, value)

    def _step(self, event: Event) -> None:
        step = event.whole("step")
        self._expect("step", event, step)
        if step is None:
            return
        step += 1 - self.first
        if "loss" in event.values:
            self._expect("loss", event, event.number("loss"))
        values = {name: value for name in event.values if name != "step" and (value := event.number(name)) is not None}
        if self._pending is not None and self._pending[0] == step:
            self._pending[1].update(values)
            return
        self._hand_on()
        if step != self.newest + 1 and not self.disorder:
            self.disorder = f"after step {self.newest} the output tells of step {step}"
        self.steps, self.newest = self.steps + 1, step
        if self.steps > MOST_STEPS:
            raise TooManySteps(f"the output tells of more than {MOST_STEPS} steps")
        self._pending = (step, values)

    def _hand_on(self) -> None:
        if self._pending is not None:
            (step, values), self._pending = self._pending, None
            if "loss" in values:
                self.losses.append(values["loss"])
            self.on_step(step, values)

    def _expect(self, name: str, event: Event, value: float | None) -> None:
        """Note a value that cannot be read: left out without a word, it would be what nobody sees fail."""
        if value is None and not self.unread:
            self.unread = f"{name} {event.values.get(name, '')[:_LONGEST_VALUE]!r}"
