"""The checks of a job's output: losses, steps, rates, gradients and batches."""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import Final

from harness.tools.trainer.output_events import Event, EventKind
from harness.tools.watch.job_state import Check, StepAt

__all__ = ["OUTPUT_CHECKS"]

_VANISHED: Final = 1e-7
"""A loss of this size in float32 is rounding: there is nothing to learn."""
_FLOWS: Final = 1e-6
"""A norm of the gradient that is more than rounding."""
_LEARNED: Final = 0.01
"""The share of the largest loss below which a loss is constant because the output rounds it."""
_IN_A_ROW: Final = 5
_REMEMBERED: Final = 1_000_000
"""Maximum stored checksums of batches."""


class LossesFinite(Check):
    """Losses are numbers, not NaN and not infinite."""

    name, needs = "losses_not_finite", "losses in the output"
    source = "a NaN never becomes a number again"

    def on_step(self, step: StepAt) -> None:
        if (loss := step.values.get("loss")) is not None:
            self.judged = True
            if not math.isfinite(loss):
                self.refute(f"the loss is {loss}", step.step)


class LossesMove(Check):
    """Losses differ from step to step, and are not 0 from the beginning."""

    name, needs = "losses_constant", "losses in the output"
    source = "batches differ, and so do their losses"

    def begin(self) -> None:
        self._last: deque[float] = deque(maxlen=max(self.given.window, _IN_A_ROW))
        self._largest = 0.0
        self._flows = False
        """Whether a norm of the gradient was more than rounding, or no number."""

    def on_step(self, step: StepAt) -> None:
        """A loss that fell until the output rounds it to 0 is learned.

        GRPO's loss is 0 as long as the policy is that of the samples. Its gradient is not, unless all rewards of a step
        are equal. So a single loss of 0 with a gradient of 0 refutes only a job that has a teacher.
        """
        loss, norm = step.values.get("loss"), step.values.get("grad_norm")
        self._flows = self._flows or not (norm or 0.0) <= _FLOWS
        if loss is None or not math.isfinite(loss) or self.found:
            return
        self.judged = True
        self._last.append(loss)
        self._largest = max(self._largest, abs(loss))
        few = list(self._last)[-_IN_A_ROW:]
        if self._largest < _VANISHED:
            is_taught = "teacher" in self.job.description.get("roles", ())
            if len(few) >= (1 if is_taught and norm is not None else _IN_A_ROW) and not self._flows:
                said = "student and teacher are the same, or nothing is compared"
                self.refute(f"the loss is {loss:g}: {said}", step.step)
        elif abs(loss) > _LEARNED * self._largest and self._last.count(loss) == self._last.maxlen:
            self.refute(f"the loss was {loss:g} in each of {len(self._last)} steps", step.step)


class _LossesOfWindows(Check):
    def begin(self) -> None:
        self._first: list[float] = []
        self._last: deque[float] = deque(maxlen=self.given.window)

    def on_step(self, step: StepAt) -> None:
        loss = step.values.get("loss")
        if loss is None or not math.isfinite(loss) or self.found:
            return
        if len(self._first) < self.given.window:
            self._first.append(loss)
            return
        self._last.append(loss)
        if len(self._last) == self.given.window:
            self.on_window(step.step, median(self._first), median(self._last))

    def on_window(self, step: int, before: float, now: float) -> None:
        """Take the medians of the first and of the newest window."""


class LossesFall(_LossesOfWindows):
    """The median loss of a window does not rise far above that of the first window."""

    name, needs = "losses_rise", "two windows of losses in the output"
    source = "the parameter rise"

    def on_window(self, step: int, before: float, now: float) -> None:
        self.judged = True
        if before > 0 and now > self.given.rise * before:
            self.refute(f"the loss rose from {before:g} to {now:g}, medians of {self.given.window} steps", step)


class LossesLearned(_LossesOfWindows):
    """By the step `learn_by`, the median loss of some window is below that of the first window."""

    name, needs = "losses_never_fall", "learn_by, and losses up to that step"
    source = "the parameters learn_by and fall"
    _best = math.inf

    def on_window(self, step: int, before: float, now: float) -> None:
        self._best = min(self._best, now)
        if self.judged or self.given.learn_by is None or step < self.given.learn_by:
            return
        self.judged = True
        if not self._best <= (1 - self.given.fall) * before:
            self.refute(f"the loss was {before:g}, and by step {step} it was {self._best:g} at best", step)


class BatchesDiffer(Check):
    """No batch repeats, by the checksum `batch` that the output or the process reports."""

    name, needs = "batches_repeated", "a checksum of each batch, as the value `batch` of a step"
    source = "an epoch has each batch once"

    def begin(self) -> None:
        self._seen: dict[tuple[float, int], int] = {}
        self._repeats = 0

    def on_step(self, step: StepAt) -> None:
        """A batch occurs once in an epoch (the integer part of `epoch`); without `epoch`, not twice in a row."""
        batch, epoch = step.values.get("batch"), step.values.get("epoch")
        if batch is None or not math.isfinite(batch):
            return
        self.judged = True
        if epoch is None:
            self._seen = {key: at for key, at in self._seen.items() if at == step.step - 1}
        key = (batch, math.ceil(epoch) if epoch is not None and math.isfinite(epoch) else 0)
        earlier = self._seen.get(key)
        if len(self._seen) < _REMEMBERED:
            self._seen[key] = step.step
        self._repeats = self._repeats + 1 if earlier is not None and earlier != step.step else 0
        if self._repeats == 2 and not self.found:  # one repeated batch can be chance where rows are few
            self.refute(f"the batch is that of step {earlier} again, and so was the one before", step.step)


class GradientsFlow(Check):
    """Norms of gradients, where they are printed, are neither 0 nor NaN for several steps."""

    name, needs = "gradients_lost", "norms of gradients in the output, as `grad_norm`"
    source = "a step without a gradient trains nothing"

    def begin(self) -> None:
        self._lost = 0

    def on_step(self, step: StepAt) -> None:
        """Loss scaling skips a single norm that is not finite."""
        norm = step.values.get("grad_norm")
        if norm is None:
            return
        self.judged = True
        self._lost = self._lost + 1 if norm == 0 or not math.isfinite(norm) else 0
        if self._lost == _IN_A_ROW and not self.found:
            self.refute(f"the norm of the gradient was {norm:g} in {_IN_A_ROW} steps", step.step)


class StepsTrue(Check):
    """Steps are consecutive, and as many as requested."""

    name, needs = "steps_untrue", "steps in the output"
    source = "a count is exact"

    def begin(self) -> None:
        self._before, self._others = 0, 0
        self._is_reported = False

    def on_step(self, step: StepAt) -> None:
        """A run that resumes at a checkpoint repeats the steps after it."""
        self.judged = True
        requested, total = self.given.steps, step.values.get("total")
        if step.step <= self._before and step.step - 1 not in self.job.seen:
            self.refute(f"step {step.step} comes after step {self._before}, and there is no checkpoint to resume at")
        if not self._is_reported and requested is not None:
            self._others = self._others + 1 if total is not None and total != requested else 0
            if self._others == 2:  # two processes may garble a line
                self._is_reported = True
                self.refute(f"the run is of {total:g} steps, and {requested} were asked for", step.step)
            elif step.step > requested:
                self._is_reported = True
                self.refute(f"{requested} steps were asked for, and this is step {step.step}", step.step)
        self._before = step.step

    def on_end(self, status: int | None) -> None:
        """A job that failed or was ended legitimately has fewer steps."""
        if contradiction := self.job.telling.contradiction:
            self.refute(contradiction)
        made, requested = self.job.made, self.given.steps
        if status == 0 and requested is not None and made is not None and made < requested and not self._is_reported:
            self.refute(f"the run ended after {made} steps, and {requested} were asked for")


class RatesScheduled(Check):
    """The learning rate is that of the schedule."""

    name, needs = "rates_off", "learning rates in the output, as `learning_rate`"
    source = "the parameters schedule and rate_error"

    def begin(self) -> None:
        self._zeros = 0

    def on_step(self, step: StepAt) -> None:
        """A log of step k can show the rate of the step before or after it."""
        rate = step.values.get("learning_rate")
        if rate is None or self.found:
            return
        self.judged = True
        given = self.given
        ends = given.steps is not None and step.step >= given.steps - 1
        self._zeros = self._zeros + 1 if rate == 0 and not ends else 0
        if self._zeros == 3 or not math.isfinite(rate) or rate < 0:
            self.refute(f"the learning rate is {rate:g}", step.step)
        elif given.learning_rate is not None:
            slack = given.rate_error * given.learning_rate
            due = [self._due(near) for near in range(step.step - 2, step.step + 2)] if given.schedule else []
            expected = [step for step in due if step is not None]
            low, high = (min(expected), max(expected)) if expected else (0.0, given.learning_rate)
            if not low - slack <= rate <= high + slack:
                said = f"{high:g} is due" if expected else f"{given.learning_rate:g} was asked for"
                self.refute(f"the learning rate is {rate:g}, and {said}", step.step)

    def _due(self, step: int) -> float | None:
        """Return the scheduled rate after this many steps, as transformers' schedules define it."""
        given, step = self.given, max(step, 0)
        assert given.learning_rate is not None
        if step < given.warmup_steps:
            return given.learning_rate * step / given.warmup_steps
        if given.schedule == "constant":
            return given.learning_rate
        if given.steps is None:
            return None
        share = min((step - given.warmup_steps) / max(given.steps - given.warmup_steps, 1), 1.0)
        shape = 1.0 - share if given.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * share))
        return given.learning_rate * shape


class SavesSucceed(Check):
    """No checkpoint fails to be written."""

    name, needs = "saves_failed", "a line of failed saves in the trainer's file"
    source = "a failed save loses the steps since the last one"

    def on_time(self) -> None:
        self.judged = self.judged or bool(self.job.step and self.job.description.get("tells_saves"))

    def on_event(self, event: Event) -> None:
        if event.kind is EventKind.FAILED_SAVE:
            self.judged = True
            self.refute("the output says that a checkpoint could not be written")


OUTPUT_CHECKS: Final = (
    LossesFinite,
    LossesMove,
    LossesFall,
    LossesLearned,
    BatchesDiffer,
    GradientsFlow,
    StepsTrue,
    RatesScheduled,
    SavesSucceed,
)
