"""Tuning that survives configurations which do not fit, and trusts no result that it has not checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor
from triton.runtime.errors import OutOfResources

from falsifiers.nanochat.device_subjects import Candidate, Run
from harness import Setting

__all__ = ["CheckedTuner"]


class CheckedTuner:
    """The fastest of those that fit and are right."""

    def __init__(self, setting: Setting) -> None:
        """Nothing depends on the setting."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Callable[[Tensor], bool]) -> Candidate | None:
        """See `Tuner`."""
        best, shortest = None, math.inf
        for candidate in candidates:
            try:
                seconds, result = run(candidate)
            except OutOfResources:
                continue
            if seconds < shortest and right(result):
                best, shortest = candidate, seconds
        return best
