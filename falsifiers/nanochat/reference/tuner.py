"""A tuner that skips configurations that do not fit, and checks every result."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor
from triton.runtime.errors import OutOfResources

from falsifiers.nanochat.device_subjects import Candidate, Run
from harness import Setting


class CheckedTuner:
    """Chooses the fastest configuration that fits and has a right result. See `Tuner`."""

    def __init__(self, setting: Setting) -> None: ...

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Callable[[Tensor], bool]) -> Candidate | None:
        best, shortest = None, math.inf
        for candidate in candidates:
            try:
                seconds, result = run(candidate)
            except OutOfResources:
                continue
            if seconds < shortest and right(result):
                best, shortest = candidate, seconds
        return best
