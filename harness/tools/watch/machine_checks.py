"""The checks of time, memory, disk and GPU."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from typing import Final

from harness.tools.watch.facts import Fact
from harness.tools.watch.job_state import Check, Checkpoint, StepAt

__all__ = ["MACHINE_CHECKS"]

_GIB: Final = 1 << 30
_OTHERS, _BUSY = 20.0, 90.0
"""Thresholds in percent: time that the job waits for a processor, processors that others use, and processors in use.
Above them, a low rate of steps is not the job's fault."""
_FEWEST: Final = 5
_WORKS: Final = 20.0
"""Percent of a processor above which a process is working."""
_CLIENT: Final = 5.0
"""Maximum percent of a processor for a process that only waits for a job elsewhere, such as in a container."""
_ABSENT: Final = 2
"""Number of consecutive samples without any use of a GPU that refutes."""
_DEADLOCK: Final = 10.0
"""The factor on the stall time after which a busy job counts as stalled too."""


def _is_crowded(usage: Fact) -> bool:
    """Whether others occupy the processors that the job waits for, or may do so if the kernel reports no waiting
    time."""
    if (waiting := usage.get("waiting_percent")) is not None:
        return bool(waiting > _OTHERS)
    return bool(usage.get("others_percent", 0.0) > _OTHERS and usage.get("busy_percent", 0.0) > _BUSY)


class StepsGoOn(Check):
    """The job continues to make steps."""

    name, needs = "stalled", "steps in the output"
    source = "the parameters stall_seconds and stall_steps"

    def begin(self) -> None:
        self._slowest, self._last, self._count = 0.0, 0.0, 0
        self._busy_at = 0.0

    def on_step(self, step: StepAt) -> None:
        if self._count:
            self._slowest = max(self._slowest, step.at - self._last)
        self._last, self._count = step.at, self._count + 1

    def on_usage(self, usage: Fact) -> None:
        works = usage.get("cpu_percent", 0.0) > _WORKS or usage.get("gpu_utilisation_percent", 0) > 0
        if works or _is_crowded(usage):
            self._busy_at = usage["at"]
        if usage.get("suspended"):
            self._last = usage["at"]

    def on_time(self) -> None:
        """Preparation, evaluation, saving and finishing can take long.

        So a job is stalled only if it also prints nothing, and its processes are idle although processors are free.
        Because a deadlock can be busy, a busy job is stalled after a much longer time.
        """
        job, given = self.job, self.given
        if self._count < _FEWEST or self.found:
            return
        self.judged = True
        if job.telling.told_steps is not None or job.telling.newest >= (given.steps or math.inf):
            return
        last = max(self._last, job.output_at)
        limit = max(given.stall_seconds, given.stall_steps * self._slowest)
        if job.at - max(last, self._busy_at) > limit or job.at - last > _DEADLOCK * limit:
            self.refute(
                f"no step and no output for {job.at - last:.1f} s; until then the slowest step took "
                f"{self._slowest:.1f} s"
            )


class RateKept(Check):
    """The rate of steps does not collapse."""

    name, needs = "throughput_collapsed", "steps over two windows of time"
    source = "the parameters collapse and collapse_seconds"

    def begin(self) -> None:
        self._began: StepAt | None = None
        self._before, self._pause = 0.0, 0.0
        self._best = 0.0
        self._crowded = False

    def on_usage(self, usage: Fact) -> None:
        self._crowded = self._crowded or _is_crowded(usage)

    def on_step(self, step: StepAt) -> None:
        """A window excludes its longest pause, which may be an evaluation.

        Windows in which others occupied the processors are skipped.
        """
        if self._began is None:
            self._began, self._before = step, step.at
            return
        self._pause, self._before = max(self._pause, step.at - self._before), step.at
        seconds, steps = step.at - self._began.at - self._pause, step.step - self._began.step
        if seconds < self.given.collapse_seconds or steps < _FEWEST:
            return
        rate, crowded = steps / seconds, self._crowded
        self._began, self._pause, self._crowded = step, 0.0, False
        if self._best and not crowded:
            self.judged = True
            if rate * self.given.collapse < self._best and not self.found:
                self.refute(f"{rate:.3g} steps a second for {seconds:.0f} s; before, up to {self._best:.3g}", step.step)
        self._best = max(self._best, rate)


class MemoryBounded(Check):
    """Memory does not creep towards the machine's limit."""

    name, needs = "memory_creeps", "samples of the job's processes, and steps"
    source = "the parameters creep_windows and creep_seconds"

    def begin(self) -> None:
        self._windows: deque[tuple[float, float]] = deque(maxlen=self.given.creep_windows + 1)
        self._ends_at = 0.0
        self._highest = 0.0

    def on_usage(self, usage: Fact) -> None:
        """Refuted if each window's peak exceeds the previous one, and extrapolation to the end of the run fills the
        memory."""
        if self.given.steps is None or not self.job.step or self.found:
            return
        used = self.job.memory(usage, "anonymous_bytes")
        if used is None:
            return
        self._highest = max(self._highest, used)
        if usage["at"] < self._ends_at:
            return
        if self._ends_at:
            self._windows.append((usage["at"], self._highest))
        self._ends_at, self._highest = usage["at"] + self.given.creep_seconds, used
        if len(self._windows) == self._windows.maxlen:
            self.judged = True
            self._extrapolate(usage)

    def _extrapolate(self, usage: Fact) -> None:
        windows, job = list(self._windows), self.job
        growths = [after - before for (_, before), (_, after) in pairwise(windows)]
        least, mean = min(growths), sum(growths) / len(growths)
        limit = usage.get("gpu_limit_bytes" if self.given.device == "cuda" else "limit_bytes")
        if least < 0.5 * mean or mean <= 0 or limit is None or job.pace is None:
            return  # slowing growth is a cache or an allocator that fills
        seconds_left = ((self.given.steps or 0) - job.step) * job.pace
        (first, _), (last, now) = windows[0], windows[-1]
        at_end = now + mean * len(growths) / (last - first) * seconds_left
        if at_end > limit:
            self.refute(
                f"memory grows by {mean / self.given.creep_seconds / 2**20:.2g} MiB/s, is {now / _GIB:.2f} GiB, and "
                f"would reach {at_end / _GIB:.1f} GiB of {limit / _GIB:.1f} GiB at the end"
            )


class MemoryPredicted(Check):
    """Memory stays within the prediction."""

    name, needs = "memory_beyond_prediction", "predicted_bytes, and samples of the job's processes"
    source = "the parameters predicted_bytes and memory_slack"

    def on_usage(self, usage: Fact) -> None:
        used, predicted = self.job.memory(usage, "rss_bytes"), self.given.predicted_bytes
        if used is None or predicted is None:
            return
        self.judged = True
        if used > self.given.memory_slack * predicted and not self.found:
            self.refute(f"{used / _GIB:.2f} GiB are used, and {predicted / _GIB:.2f} GiB were predicted")


class GpuUsed(Check):
    """A job that asked for a GPU uses it."""

    name, needs = "gpu_unused", "device=cuda, samples of the job's processes, and steps"
    source = "the parameter idle_seconds"

    def begin(self) -> None:
        self._idle_since: float | None = None
        self._launched, self._absent = 0, 0

    def on_usage(self, usage: Fact) -> None:
        """`gpu_seen` is whether the driver lists a process of the job: True, False, or None if unknown.

        The recorder reports whether a kernel was launched. If the processes are idle, the job runs elsewhere. A process
        that is absent in one sample may be about to start.
        """
        job = self.job
        if self.given.device != "cuda" or job.step < _FEWEST or self.found:
            return
        seen, busy = usage.get("gpu_seen"), usage.get("gpu_utilisation_percent")
        works = usage.get("cpu_percent", 0.0) > _CLIENT
        is_absent = works and not job.launched and (seen is False or job.sees_driver)
        self._absent = self._absent + 1 if is_absent else 0
        if self._absent == _ABSENT:
            self.judged = True
            why = "no process of it is on a GPU" if seen is False else "the CUDA driver was asked to launch no kernel"
            self.refute(f"the job makes steps, and {why}: it runs on the CPU")
        elif (seen or job.launched) and busy is not None:
            self.judged = True
            if busy > 0 or job.launched > self._launched:
                self._idle_since, self._launched = None, job.launched
            elif self._idle_since is None:
                self._idle_since = usage["at"]
            elif usage["at"] - self._idle_since > self.given.idle_seconds:
                self.refute(f"the GPU did nothing for {usage['at'] - self._idle_since:.0f} s")


class DiskLeft(Check):
    """The next checkpoint has room on the disk."""

    name, needs = "disk_short", "a checkpoint, and the free space of its folder"
    source = "a checkpoint needs the room of the largest one before"

    def begin(self) -> None:
        self._largest = 0

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._largest = max(self._largest, checkpoint.size)

    def on_usage(self, usage: Fact) -> None:
        """Only the next checkpoint counts, because the trainer may delete older ones."""
        free = usage.get("free_bytes")
        needed = self._largest or usage.get("expected_bytes") or 0
        if free is None or not needed or self.found:
            return
        self.judged = True
        if free < needed:
            self.refute(f"the disk has {free / 2**20:.1f} MiB left, and a checkpoint needs {needed / 2**20:.1f} MiB")


class DeviceTrue(Check):
    """The output names the requested device."""

    name, needs = "device_other", "device, and a line of the output that names it"
    source = "the device that was asked for"

    def on_time(self) -> None:
        device = self.job.telling.ran.get("device", "").lower()
        if not device or not self.given.device:
            return
        self.judged = True
        runs = "cuda" if device.startswith(("cuda", "gpu")) else device
        if runs != self.given.device and not self.found:
            self.refute(f"{self.given.device} was asked for, and the output says {device}")


class EndsWell(Check):
    """The job ends with status 0."""

    name, needs = "ended_badly", "the end of the job, and its status"
    source = "0 is success"

    def on_end(self, status: int | None) -> None:
        """A job that the watcher or an external signal ended is not at fault."""
        if status is None or self.job.was_ended or status in _FROM_OUTSIDE:
            return
        self.judged = True
        if status != 0:
            self.refute(f"the job ended with status {status}")


_FROM_OUTSIDE: Final = frozenset({128 + 1, 128 + 2, 128 + 9, 128 + 15, -1, -2, -9, -15})
"""SIGHUP, SIGINT, SIGKILL and SIGTERM: of a user, a scheduler, or the kernel."""

MACHINE_CHECKS: Final = (
    StepsGoOn,
    RateKept,
    MemoryBounded,
    MemoryPredicted,
    GpuUsed,
    DiskLeft,
    DeviceTrue,
    EndsWell,
)
