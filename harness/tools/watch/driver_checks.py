"""The checks of what a job asks of the CUDA driver, as its recorder tells."""

from __future__ import annotations

from typing import Final

from harness.tools.watch.facts import Fact
from harness.tools.watch.job_state import Check, StepAt

__all__ = ["DRIVER_CHECKS"]

_MANY: Final = 5


class KernelsCompiled(Check):
    """The driver compiles kernels at the beginning, and then no more."""

    name, needs = "kernels_compiled", "the recorder of the CUDA driver, and two windows of steps"
    source = "kernels are compiled once, before their first use"

    def begin(self) -> None:
        self._step, self._at, self._row = 0, 0.0, 0

    def on_driver(self, driver: Fact) -> None:
        """A first evaluation or save may need new kernels, so only window after window refutes.

        With jit=none, the first image that has to be compiled does.
        """
        job, window = self.job, self.given.window
        images = driver.get("images")  # told at once; what was compiled, a second later
        if self.found:
            return
        if images and self.given.jit == "none":
            self.refute(f"no compilation was asked for, and the driver got {images[0]}")
        elif (images or driver.get("compiled")) and job.step >= self._step + window:
            follows = job.at - self._at <= max(self.given.collapse_seconds, 2 * window * (job.pace or 0.0))
            self._step, self._at, self._row = job.step, job.at, self._row + 1 if follows else 1
            if self._row == _MANY:
                self.refute(f"the driver compiles on: {_MANY} times, each at least {window} steps after the one before")

    def on_step(self, step: StepAt) -> None:
        self.judged = self.judged or (self.job.is_recorded and step.step >= 2 * self.given.window)


class AllocationsRefused(Check):
    """The driver does not refuse memory again and again. After a refusal, an allocator gives its cache back."""

    name, needs = "allocations_refused", "the recorder of the CUDA driver, and steps"
    source = "an allocator that is refused memory gives its cache back and begins anew"

    def begin(self) -> None:
        self._steps: set[int] = set()

    def on_driver(self, driver: Fact) -> None:
        """A single refusal may belong to a search for the largest batch."""
        self.judged = self.judged or bool(self.job.step)
        if driver.get("refused") and not self.found:
            self._steps.add(self.job.step)
            if len(self._steps) == _MANY:
                self.refute(f"the driver had no memory at {_MANY} steps: {driver['refused'][0]}")


DRIVER_CHECKS: Final = (KernelsCompiled, AllocationsRefused)
