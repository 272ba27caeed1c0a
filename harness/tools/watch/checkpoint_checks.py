"""The checks of the weights of a job: in its checkpoints, and in its memory."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from harness.tools.watch.facts import Fact
from harness.tools.watch.job_state import INITIAL, Check, Checkpoint, JobState

__all__ = ["CHECKPOINT_CHECKS", "TeacherApart"]

_SHOWN: Final = 3
"""Names of tensors in a refutation."""
_DTYPE, _SHAPE, _DIGEST, _NOT_FINITE = range(4)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _before(job: JobState, checkpoint: Checkpoint) -> Checkpoint | None:
    """Return the newest earlier checkpoint that was read; else the first weights."""
    read = [other for other in job.checkpoints.values() if not other.refused and other.step < checkpoint.step]
    return max(read, key=lambda other: other.step, default=job.weights.get("initial"))


class CheckpointsOnTime(Check):
    """A checkpoint of every N-th step appears."""

    name, needs = "checkpoints_late", "checkpoint_every, and a folder whose checkpoints the trainer's file names"
    source = "the parameters checkpoint_every and late_seconds"

    def begin(self) -> None:
        self._due: dict[int, float] = {}
        self._last_due = 0

    def on_time(self) -> None:
        """A save may be slow or asynchronous, so a checkpoint is late only if both limits, time and steps, are
        exceeded."""
        every, job = self.given.checkpoint_every, self.job
        if every is None or not job.description.get("folder"):
            return
        for step in range(self._last_due + every, job.step + 1, every):
            self._due[step], self._last_due, self.judged = job.at, step, True
        for step, since in list(self._due.items()):
            if step in job.seen:
                del self._due[step]
            elif job.at - since > self.given.late_seconds and job.step >= step + self.given.late_steps:
                del self._due[step]
                self.refute(f"there is no checkpoint of step {step}, {job.at - since:.0f} s after that step", step)

    def on_end(self, status: int | None) -> None:
        if status == 0:
            for step in set(self._due) - self.job.seen:
                self.refute(f"the run ended, and there is no checkpoint of step {step}", step)


class CheckpointsLoad(Check):
    """Each checkpoint can be read to its end."""

    name, needs = "checkpoints_unreadable", "checkpoints"
    source = "a checkpoint is read to its end"

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.judged = True
        if checkpoint.refused:
            self.refute(f"{checkpoint.name}, {checkpoint.size} bytes: {checkpoint.refused}", checkpoint.step)
        elif not any(math.prod(tensor[_SHAPE]) for tensor in checkpoint.tensors.values()):
            self.refute(f"{checkpoint.name}, {checkpoint.size} bytes, holds no weights", checkpoint.step)


class CheckpointsWhole(Check):
    """Each checkpoint has the tensors of the first weights, or of the checkpoint before."""

    name, needs = "checkpoints_incomplete", "two checkpoints, or the first weights"
    source = "a model keeps its tensors and their shapes"

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        before = self.job.weights.get("initial") or _before(self.job, checkpoint)
        if checkpoint.refused or before is None or before.refused or not checkpoint.tensors:
            return
        self.judged = True
        lacks = [name for name in before.tensors if name not in checkpoint.tensors]
        other = [
            name
            for name, tensor in checkpoint.tensors.items()
            if name in before.tensors and list(before.tensors[name][_SHAPE]) != list(tensor[_SHAPE])
        ]
        if lacks:
            self.refute(f"{checkpoint.name} lacks {_named(lacks)}", checkpoint.step)
        if other:
            self.refute(f"{checkpoint.name} has other shapes of {_named(other)}", checkpoint.step)


class CheckpointsFinite(Check):
    """The weights of each checkpoint are finite."""

    name, needs = "checkpoints_not_finite", "checkpoints"
    source = "a NaN never becomes a number again"

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        if checkpoint.refused:
            return
        self.judged = True
        if bad := [name for name, tensor in checkpoint.tensors.items() if tensor[_NOT_FINITE]]:
            self.refute(f"{checkpoint.name} has numbers that are not finite in {_named(bad)}", checkpoint.step)


class CheckpointsMoved(Check):
    """Each tensor has moved since the first weights."""

    name, needs = "checkpoints_unmoved", "the first weights"
    source = "an AdamW step with a gradient moves every element (arXiv:1711.05101)"

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        """The trainer's file names the tensors that the run does not train."""
        first = self.job.weights.get("initial")
        if checkpoint.refused or first is None or first.refused or self.found:
            return
        both = _trained(self.job, checkpoint.tensors.keys() & first.tensors.keys())
        if not both:
            return
        self.judged = True
        if still := [name for name in both if checkpoint.tensors[name][_DIGEST] == first.tensors[name][_DIGEST]]:
            self.refute(f"{checkpoint.name}: {_named(still)} as in the first weights", checkpoint.step)


class CheckpointsNew(Check):
    """No checkpoint holds the weights of the one before."""

    name, needs = "checkpoints_stale", "two checkpoints"
    source = "the steps between two checkpoints move weights"

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        before = _before(self.job, checkpoint)
        if checkpoint.refused or before is None or before.step == INITIAL or not checkpoint.tensors:
            return
        self.judged = True
        if checkpoint.digests() == before.digests():
            self.refute(f"{checkpoint.name} holds the weights of step {before.step}", checkpoint.step)


class CheckpointsByRate(Check):
    """AdamW moved the weights by about the learning rate in each step."""

    name, needs = "checkpoints_off_rate", "optimizer=adamw, learning_rate, and two checkpoints or the first weights"
    source = "AdamW moves an element by about its rate in a step (arXiv:1412.6980, 2.1)"

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        """The largest movement of an element, over the rates of the steps in between."""
        given = self.given
        if given.optimizer != "adamw" or given.learning_rate is None or checkpoint.since is None or self.found:
            return
        moved = {name: checkpoint.moved[name] for name in _trained(self.job, checkpoint.moved.keys())}
        steps = checkpoint.step - checkpoint.since
        if not moved or steps < 1:
            return
        self.judged = True
        reach = given.learning_rate * steps
        name = max(moved, key=lambda tensor: moved[tensor])
        if moved[name] > given.step_factor * reach + 1e-7:
            movement = f"{name} moved by {moved[name]:.3g} in {steps} steps; at a rate of {given.learning_rate:g}"
            self.refute(f"{checkpoint.name}: {movement} that is at most about {reach:.3g}", checkpoint.step)
        elif moved[name] < given.least_movement * given.learning_rate * _fewest(given.warmup_steps, checkpoint):
            movement = f"no element moved by more than {moved[name]:.3g} in {steps} steps"
            self.refute(f"{checkpoint.name}: {movement} at a rate of {given.learning_rate:g}", checkpoint.step)


def _fewest(warmup: int, checkpoint: Checkpoint) -> float:
    """Return the smallest share of the full rate that the first step in between can have had."""
    return 1.0 if warmup == 0 or (checkpoint.since or 0) >= warmup else 1.0 / warmup


class TeacherApart(Check):
    """The student does not have the teacher's weights."""

    name, needs = "teacher_is_student", "the teacher's weights"
    source = "SPEC-DISTILL-001, section 86: 25 GPU-hours of it"

    def on_weights(self, role: str, weights: Checkpoint) -> None:
        if initial := self.job.weights.get("initial"):
            self._compare(initial, "the student's first weights")

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._compare(checkpoint, checkpoint.name)

    def _compare(self, checkpoint: Checkpoint, what: str) -> None:
        teacher = self.job.weights.get("teacher")
        if teacher is None or teacher.refused or checkpoint.refused or not checkpoint.tensors or self.found:
            return
        self.judged = True
        if checkpoint.digests() == teacher.digests():
            self.refute(f"{what} are the teacher's", checkpoint.step)


class WeightsMove(Check):
    """The weights in memory move from one look to the next."""

    name, needs = "weights_unmoved", "weights in the job's own process"
    source = "a step with a gradient moves weights"

    def begin(self) -> None:
        self._before: Fact | None = None

    def on_sums(self, sums: Fact) -> None:
        """If the sum of magnitudes is bitwise equal to the previous one, the weights have not moved."""
        before, self._before = self._before, sums
        if before is None or before["step"] >= sums["step"]:
            return
        self.judged = True
        if before["sums"] == sums["sums"] and not self.found:
            self.refute(f"all weights are as they were after step {before['step']}", sums["step"])


def _trained(job: JobState, names: Any) -> list[str]:
    """Return the names of tensors that the run trains, by the trainer's file."""
    frozen = job.description.get("frozen")
    return sorted(name for name in names if not frozen or re.search(frozen, name) is None)


CHECKPOINT_CHECKS: Final = (
    CheckpointsOnTime,
    CheckpointsLoad,
    CheckpointsWhole,
    CheckpointsFinite,
    CheckpointsMoved,
    CheckpointsNew,
    CheckpointsByRate,
    TeacherApart,
    WeightsMove,
)
