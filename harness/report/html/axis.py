"""An axis of a drawing: where a number lies, and at which round numbers the ticks are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low
from sys import float_info
from typing import Final

__all__ = ["Axis", "coordinate"]

_SQUEEZED: Final = 30
"""If the maximum is this many times the median, a linear axis would squeeze half of the values into one place."""
_NOISE: Final = 1e-6
"""Relative differences below this are rounding errors of time stamps. They are drawn as a flat line."""
_LARGEST: Final = 1e300
"""A range beyond this gets no room, which could overflow."""


@dataclass(frozen=True)
class Axis:
    """A range of numbers, drawn between two coordinates."""

    low: float
    """The number at `start`; on a logarithmic axis its power of ten."""
    high: float
    start: float
    end: float
    logarithmic: bool = False
    """Whether equal distances are equal ratios. Zero then lies at `start`."""
    whole: bool = False
    """Whether only whole numbers get ticks."""

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float, room: float = 0.06) -> Axis:
        """Return an axis for these finite values. Room is added at both ends, as a share of their range."""
        values = values or (0.0,)
        whole = all(float(value).is_integer() for value in values)
        positive = [value for value in values if value > 0]
        if min(values) >= 0 and positive and max(positive) / median_low(positive) > _SQUEEZED:
            low, high = math.log10(min(positive)), math.log10(max(positive))
            below = 3 * room if len(positive) < len(values) else room
            return cls(low - below * (high - low), high + room * (high - low), start, end, True, whole)
        low, high = _range(min(values), max(values), room)
        return cls(low, high, start, end, False, whole)

    @classmethod
    def exactly(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """Return a linear axis from the least to the largest value. A single value lies in the middle."""
        low, high = min(values, default=0.0), max(values, default=0.0)
        low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
        return cls(low, high, start, end, False, all(float(value).is_integer() for value in values))

    @classmethod
    def powers(cls, values: Sequence[float], start: float, end: float, room: float = 0.04) -> Axis:
        """Return a logarithmic axis for the positive ones of these values."""
        logarithms = [math.log10(value) for value in values if value > 0] or [0.0]
        margin = room * max(max(logarithms) - min(logarithms), 1.0)
        return cls(min(logarithms) - margin, max(logarithms) + margin, start, end, True)

    def place(self, value: float) -> float:
        """Return the coordinate of a number; of one outside the range, the nearer end."""
        if self.logarithmic:
            value = math.log10(value) if value > 0 else self.low
        half = self.high / 2 - self.low / 2  # halves, because the range may overflow
        share = (value / 2 - self.low / 2) / half if half else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, count: int) -> Iterator[float]:
        """Yield about `count` round numbers within the range."""
        yield from self._powers(count) if self.logarithmic else self._multiples(count)

    def _multiples(self, count: int) -> Iterator[float]:
        rough = (self.high - self.low) / count
        if not (math.isfinite(rough) and rough > 0):
            return
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
        step = max(step, 1.0) if self.whole else step
        for index in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1):
            yield index * step

    def _powers(self, count: int) -> Iterator[float]:
        # The room at the ends can reach beyond the numbers that a float can have.
        first = max(math.floor(self.low), float_info.min_10_exp)
        last = min(math.floor(self.high), float_info.max_10_exp - 1)
        every = math.ceil((last - first + 1) / count)
        factors = (1, 2, 5) if self.high - self.low < 2.3 else (1,)
        for power in range(first, last + 1):
            for factor in factors if power % every == 0 else ():
                if self.low <= power + math.log10(factor) <= self.high:
                    yield float(f"{factor}e{power}")


def coordinate(value: float) -> str:
    """Return a coordinate with at most one decimal. Smaller differences are invisible."""
    return f"{value:.1f}".removesuffix(".0")


def _range(low: float, high: float, room: float) -> tuple[float, float]:
    """Return the range of a linear axis. It begins at zero if that uses less than half of it."""
    if high - low > _LARGEST:
        return low, high
    if high - low <= _NOISE * max(abs(low), abs(high)):
        return (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
    if 0 < low < (high - low):
        low = 0.0
    if 0 > high > (low - high):
        high = 0.0
    margin = (high - low) * room
    return (low if low == 0 else low - margin), (high if high == 0 else high + margin)
