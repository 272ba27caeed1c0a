"""The checks of a job's requests to the CUDA driver, as the recorder reports them."""

from __future__ import annotations

from typing import Final

from harness.tools.watch.facts import Fact
from harness.tools.watch.job_state import Check, StepAt

__all__ = ["DRIVER_CHECKS"]

_LOADED: Final = 20
"""The number of windows with new kernels that refutes: more than new batch lengths or an evaluation cause."""
_REFUSED: Final = 10


class _OfDriver(Check):
    """An event that may occur sometimes, but not in many windows of steps in a row."""

    most = 0
    """The number of windows with the event that refutes. A window without it reduces the count by two."""
    warm_up = 1
    """Initial windows that are not judged."""

    def begin(self) -> None:
        self._step, self._at, self._score = 0, 0.0, 0
        self._happened = ""

    def on_step(self, step: StepAt) -> None:
        """End a window at the first logged step after the driver's events of that window were read."""
        job, window = self.job, self.given.window
        if job.first is None or step.step - job.first.step + 1 < self.warm_up * window:
            return  # a resumed run does not begin at step 1
        self.judged = self.judged or job.sees_driver
        if step.step < self._step + window or step.at <= self._at:
            return
        self._score = self._score + 1 if self._step and self._happened else max(self._score - 2, 0)
        if self._score == self.most and not self.found:
            self.refute(f"{self._happened} in window after window of {window} steps, in {self.most} at least")
        self._step, self._at, self._happened = step.step, step.at, ""


class KernelsCompiled(_OfDriver):
    """The driver gets new kernels only at the beginning."""

    name, needs = "kernels_compiled", "the recorder of the CUDA driver, and two windows of steps"
    source = "kernels are compiled once, before their first use"
    most, warm_up = _LOADED, 2

    def on_driver(self, driver: Fact) -> None:
        """With jit=none, the first image that the driver must compile refutes.

        Otherwise every image counts, because Triton and NVRTC compile before they load it.
        """
        images = driver.get("images")
        if images and self.given.jit == "none" and not self.found:
            self.refute(f"no compilation was asked for, and the driver got {images[0]}")
        elif driver.get("loaded"):
            self._happened = "the driver got new kernels"


class AllocationsRefused(_OfDriver):
    """The driver does not refuse memory repeatedly. After a refusal, an allocator frees its cache."""

    name, needs = "allocations_refused", "the recorder of the CUDA driver, and a window of steps"
    source = "an allocator that is refused memory gives its cache back and begins anew"
    most = _REFUSED

    def on_driver(self, driver: Fact) -> None:
        """A few refusals may come from a search for the largest batch size, or from a rare long batch."""
        if driver.get("refused"):
            self._happened = f"the driver had no memory for {driver['refused'][0]}"


DRIVER_CHECKS: Final = (KernelsCompiled, AllocationsRefused)
