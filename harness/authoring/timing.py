"""Paired, interleaved timing: the ratio of two arms with a confidence interval.

    timing = interleave({"plain": plain, "logging": logging, "again": plain}, rounds=40, warmup=3, seed=0)
    noise = timing.ratio("again", "plain")                     # an A/A comparison: the ratio that noise alone gives
    slower = timing.ratio("logging", "plain", again="again")   # an Interval: estimate, low, high
    slower.settles(1.05)                                       # whether the interval excludes the limit

Each round times every arm once, in a new random order. Warm-up, throttling and other load then affect all arms alike.
Arms are compared within rounds. All samples are kept.

The estimate is the mean of the paired differences, trimmed by a tenth at each end. Its interval is the percentile
bootstrap of that mean (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13). `again` names an
A/A arm, a second arm with the baseline's work. The interval is then widened on both sides by the larger bound of that
A/A comparison. Judge a claim by such an interval, never by one sample: a noisy machine then decides only claims that
are far from their limit.

Trimming removes a cost that falls on fewer than one sample in ten. Make each sample long enough to contain the cost.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.authoring.toolkit_log import log

__all__ = ["Interval", "Timing", "interleave"]

_TRIMMED = 0.1
_RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """An estimate with the bounds of its confidence interval."""

    estimate: float
    low: float
    high: float

    def settles(self, limit: float) -> bool:
        """Whether the interval lies on one side of a limit."""
        return self.high <= limit or self.low > limit


@dataclass(frozen=True)
class Timing:
    """The samples of all arms.

    Attributes:
        seconds: by arm, one sample for each round, in the order of the rounds.
        orders: the order of the arms in each round.
        seed: the seed of the orders and of the bootstrap.
    """

    seconds: Mapping[str, tuple[float, ...]]
    orders: tuple[tuple[str, ...], ...]
    seed: int

    def ratio(self, arm: str, baseline: str, confidence: float = 0.99, *, again: str | None = None) -> Interval:
        """Return the geometric mean of the ratios `arm / baseline` within rounds, with its interval."""
        logarithms = {name: tuple(map(math.log, samples)) for name, samples in self.seconds.items()}
        interval = Timing(logarithms, self.orders, self.seed).difference(arm, baseline, confidence, again=again)
        return Interval(math.exp(interval.estimate), math.exp(interval.low), math.exp(interval.high))

    def difference(self, arm: str, baseline: str, confidence: float = 0.99, *, again: str | None = None) -> Interval:
        """Return the mean of the differences `arm - baseline` within rounds, in seconds, with its interval."""
        pairs = zip(self.seconds[arm], self.seconds[baseline], strict=True)
        interval = _bootstrapped(
            [arm_seconds - baseline_seconds for arm_seconds, baseline_seconds in pairs], confidence, self.seed
        )
        if again is None:
            return interval
        noise = self.difference(again, baseline, confidence)
        noise_bound = max(noise.high, -noise.low)
        return Interval(interval.estimate, interval.low - noise_bound, interval.high + noise_bound)

    def spread(self, arm: str) -> float:
        """Return the 90th percentile of an arm's samples divided by the 10th.

        Load on the host slows an arm that launches many kernels more than one that launches few. An A/A comparison
        does not show that, but the spread does: 1.02 on an idle H200, 1.7 beside other training jobs.
        """
        samples = sorted(self.seconds[arm])
        tenth = len(samples) // 10
        return samples[len(samples) - 1 - tenth] / samples[tenth]

    def as_json(self) -> dict[str, Any]:
        """Return all samples as JSON values."""
        return {"seconds": dict(self.seconds), "orders": self.orders, "seed": self.seed}


def interleave(
    arms: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warmup: int,
    seed: int,
    synchronize: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time every arm once in each round, in random order.

    Args:
        arms: functions by name. One call is the work of one sample.
        rounds: the number of samples of each arm.
        warmup: the number of untimed rounds before them.
        seed: seed of the orders.
        synchronize: waits for launched work, such as `torch.cuda.synchronize`. It is called before the start and the
            end of each sample, so that a sample contains the arm's own work only.
        clock: a monotonic clock in seconds.

    Raises:
        ValueError: there are fewer than two arms or fewer than two rounds.
    """
    if len(arms) < 2 or rounds < 2:
        raise ValueError(f"{len(arms)} arms in {rounds} rounds leave nothing to compare; give two of each or more")
    log(f"times {', '.join(arms)} in turn: {rounds} rounds after {warmup} to warm up, orders drawn with seed {seed}")
    generator = random.Random(seed)  # noqa: S311 - an order, and no secret
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    orders = []
    for number in range(warmup + rounds):
        order = tuple(generator.sample(sorted(arms), len(arms)))
        for name in order:
            synchronize()
            started = clock()
            arms[name]()
            synchronize()
            elapsed = clock() - started
            if number >= warmup:
                seconds[name].append(elapsed)
        if number >= warmup:
            orders.append(order)
    for name, samples in seconds.items():
        log(f"timed {name}: {min(samples):.6g} s to {max(samples):.6g} s, half within {median(samples):.6g} s")
    return Timing({name: tuple(samples) for name, samples in seconds.items()}, tuple(orders), seed)


def _bootstrapped(samples: Sequence[float], confidence: float, seed: int) -> Interval:
    """Return the trimmed mean and its percentile interval. Equal seeds give equal intervals."""
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence is {confidence}; give a number between 0 and 1, such as 0.99")
    generator = random.Random(seed)  # noqa: S311 - resamples, and no secret
    means = sorted(_trimmed_mean(generator.choices(samples, k=len(samples))) for _ in range(_RESAMPLES))
    tail = round((1 - confidence) / 2 * (_RESAMPLES - 1))
    return Interval(_trimmed_mean(samples), means[tail], means[-1 - tail])


def _trimmed_mean(samples: Sequence[float]) -> float:
    """Return the mean without the largest and the smallest tenth."""
    cut = int(len(samples) * _TRIMMED)
    trimmed = sorted(samples)[cut : len(samples) - cut]
    return math.fsum(trimmed) / len(trimmed)
