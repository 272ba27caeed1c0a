"""Times a function against its reference so that neither caches nor clocks flatter it.

- Every timed call gets inputs of its own, and finds the L2 cache full of something else.
- All streams of the device are waited for before the clock is read, and events must agree with the clock.
- Results of timed calls are compared with the truth afterwards.
- The clock is read from this module's own name, which is bound before the subject is imported.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from harness.authoring.tensor_function.adversary import Adversary
from harness.authoring.tensor_function.against_truth import differences
from harness.authoring.tensor_function.call import Answer, Call, filled
from harness.authoring.tensor_function.hosting import tensors_of
from harness.authoring.tensor_function.placed_memory import copied
from harness.authoring.tensor_function.sizes import sizes_of
from harness.authoring.timing import Interval, interleave

__all__ = ["Timed", "timed"]

_clock, _synchronize, _event = time.perf_counter, torch.cuda.synchronize, torch.cuda.Event
_ROUNDS: Final = 30
_WARMUP: Final = 5
_CHECKED: Final = 4
_FLUSHED: Final = 256 << 20
"""Bytes that are written between calls: more than any L2 cache has."""
_AGREEMENT: Final = 0.5
"""The least share of the clock's time that events have to show, beyond a tenth of a millisecond of launching."""


@dataclass
class Timed:
    """What the timing found.

    Attributes:
        ratio: the function's time divided by the reference's, with a 99 % interval; noise of the reference against
            itself is in it.
        problems: why the times are not to be believed; empty if they are.
        case: what was timed, in words.
    """

    ratio: Interval
    problems: list[str] = field(default_factory=list)
    case: str = ""


@dataclass
class _Arm:
    """One of the functions, with the inputs of its calls."""

    function: Callable[..., Any]
    calls: list[Call]
    device: str
    results: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)

    def __call__(self) -> None:
        args, kwargs = filled(self.calls[len(self.results)].arguments, list(self.calls[len(self.results)].tensors))
        if self.device == "cpu":
            self.results.append(self.function(*args, **kwargs))
            return
        pair = _event(enable_timing=True), _event(enable_timing=True)  # type: ignore[no-untyped-call]
        pair[0].record()
        self.results.append(self.function(*args, **kwargs))
        pair[1].record()
        self.events.append(pair)


def timed(adversary: Adversary, function: Callable[..., Any]) -> Timed:
    """Time a function against the reference in the same dtype, on the largest case."""
    case = _largest(adversary)
    reference = adversary.function.reference
    is_on_gpu = adversary.device.startswith("cuda")
    kind = "cuda" if is_on_gpu else "cpu"

    def calls(start: int) -> list[Call]:
        seeds = range(case.seed + start, case.seed + start + _ROUNDS + _WARMUP)
        return [adversary.call_for(replace(case, seed=seed), gradients=False) for seed in seeds]

    arms = {name: _Arm(arm, calls(place * 1000), kind) for place, (name, arm) in enumerate(
        {"function": function, "reference": reference, "again": reference}.items()
    )}  # fmt: skip
    cache = torch.empty(_FLUSHED if is_on_gpu else 0, dtype=torch.uint8, device=adversary.device)
    state = [0]

    def synchronize() -> None:
        state[0] += 1
        if state[0] % 2 and is_on_gpu:  # before a start
            cache.zero_()
        if is_on_gpu:
            _synchronize()

    timing = interleave(
        arms, rounds=_ROUNDS, warmup=_WARMUP, seed=adversary.seed, synchronize=synchronize, clock=_clock
    )
    result = Timed(timing.ratio("function", "reference", again="again"), case=case.text())
    arm = arms["function"]
    for number in random.Random(adversary.seed).sample(range(_WARMUP, _WARMUP + _ROUNDS), _CHECKED):  # noqa: S311
        outputs = tuple(map(copied, tensors_of(arm.results[number])))
        wrong = differences(Answer(outputs), adversary.truth(arm.calls[number], case.dtype), ())
        result.problems += [f"{case.text()}, timed call {number}: {problem}" for problem in wrong[:1]]
    for pair, seconds in zip(arm.events[_WARMUP:], timing.seconds["function"], strict=False):
        shown = pair[0].elapsed_time(pair[1]) / 1000.0
        if shown + 1e-4 < _AGREEMENT * seconds:
            result.problems.append(f"events show {shown:.3g} s, and the clock {seconds:.3g} s: work hides elsewhere")
            break
    return result


def _largest(adversary: Adversary) -> Any:
    """A case with as many elements as are allowed: sizes grow in turn."""
    case = adversary.case(700)
    pools = {name: sizes_of(*limits, ()) for name, limits in adversary.sizes.items()}
    for place in range(max(map(len, pools.values()), default=0)):
        for name, pool in pools.items():
            larger = case.with_size(name, pool[min(place, len(pool) - 1)])
            if adversary.elements(larger) <= adversary.function.largest:
                case = larger
    return case
