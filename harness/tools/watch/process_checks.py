"""The checks of a job that reports its weights from its own process."""

from __future__ import annotations

from typing import Final

from harness.tools.watch.facts import Fact
from harness.tools.watch.job_state import Check, JobState

__all__ = ["PROCESS_CHECKS"]


class WeightsMove(Check):
    """The weights in memory move from one look to the next."""

    name, needs = "weights_unmoved", "weights in the job's own process"

    def __init__(self, job: JobState) -> None:
        super().__init__(job)
        self._before: Fact | None = None

    def on_sums(self, sums: Fact) -> None:
        """See `Check`. A sum of magnitudes that equals the one before to the last bit is that of weights that stood."""
        before, self._before = self._before, sums
        if before is None or before["step"] >= sums["step"]:
            return
        self.judged = True
        if before["sums"] == sums["sums"] and not self.found:
            self.refute(f"all weights are as they were after step {before['step']}", sums["step"])


PROCESS_CHECKS: Final = (WeightsMove,)
