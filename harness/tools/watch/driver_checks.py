"""The checks of what a job asks of the CUDA driver, as its recorder tells."""

from __future__ import annotations

from typing import Final

from harness.tools.watch.facts import Fact
from harness.tools.watch.job_state import Check, StepAt

__all__ = ["DRIVER_CHECKS"]

_COMPILED: Final = 20
"""Compilations in a row that refute: more than the lengths of batches, in windows of steps, that come late."""
_REFUSED: Final = 5


class _OfDriver(Check):
    """What may happen sometimes, and not window after window."""

    warm_up = 1
    """Windows at the beginning that are not judged."""

    def begin(self) -> None:
        self._step, self._at, self._row = 0, 0.0, 0

    def on_step(self, step: StepAt) -> None:
        self.judged = self.judged or (self.job.sees_driver and self._is_warm)

    @property
    def _is_warm(self) -> bool:
        """Whether the warm-up is over. A run that resumed does not begin at step 1."""
        job = self.job
        return job.first is not None and job.step - job.first.step + 1 >= self.warm_up * self.given.window

    def happened(self) -> int:
        """Take note that it happened now. Returns how many times it did, each a window of steps or more after the one
        before, and not much later than that.
        """
        job, window = self.job, self.given.window
        if self._is_warm and job.step >= self._step + window:
            follows = job.at - self._at <= max(self.given.collapse_seconds, 2 * window * (job.pace or 0.0))
            self._step, self._at, self._row = job.step, job.at, self._row + 1 if follows else 1
        return self._row


class KernelsCompiled(_OfDriver):
    """The driver compiles kernels at the beginning, and then no more."""

    name, needs = "kernels_compiled", "the recorder of the CUDA driver, and two windows of steps"
    source = "kernels are compiled once, before their first use"
    warm_up = 2

    def on_driver(self, driver: Fact) -> None:
        """A first evaluation or a new length of batches may need new kernels, so only window after window refutes.

        With jit=none, the first image that has to be compiled does. Else the driver may have it in its cache.
        """
        images = driver.get("images")
        if self.found:
            return
        if images and self.given.jit == "none":
            self.refute(f"no compilation was asked for, and the driver got {images[0]}")
        elif driver.get("compiled") and self.happened() == _COMPILED:
            window = self.given.window
            self.refute(f"the driver compiles on: {_COMPILED} times, each at least {window} steps after the one before")


class AllocationsRefused(_OfDriver):
    """The driver does not refuse memory again and again. After a refusal, an allocator gives its cache back."""

    name, needs = "allocations_refused", "the recorder of the CUDA driver, and a window of steps"
    source = "an allocator that is refused memory gives its cache back and begins anew"

    def on_driver(self, driver: Fact) -> None:
        """A few refusals may belong to a search for the largest batch, or to a rare long one."""
        if driver.get("refused") and not self.found and self.happened() == _REFUSED:
            said = f"{_REFUSED} times, each at least {self.given.window} steps after the one before"
            self.refute(f"the driver had no memory {said}: {driver['refused'][0]}")


DRIVER_CHECKS: Final = (KernelsCompiled, AllocationsRefused)
