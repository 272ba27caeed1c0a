"""Whether a measurement moved by more than it scatters, judged against earlier runs and not against a fixed percent.

    noise = Noise.of([1.81, 1.80, 1.83, 1.79, 1.82, 1.80])
    noise.shift(1.95)   # Shift.ABOVE

The earlier values give a median and a scatter: 1.4826 times the median distance from it, which for normal noise
estimates its standard deviation and does not mind a few outliers. A value within so many scatters of the median is
noise; how many depends on how few earlier values there are, so that of a hundred healthy runs one is called a shift in
any case. Below five nothing is said. Nothing is known of which direction is the worse one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import final

__all__ = ["FEWEST", "Noise", "Shift"]

_FACTORS = {
    5: 14.34, 6: 8.02, 7: 7.73, 8: 5.92, 9: 5.78, 10: 4.95, 12: 4.43, 15: 4.06, 20: 3.51, 30: 3.17, 50: 2.93, 100: 2.74,
}  # fmt: skip
"""The 0.99 quantile of a normal value's distance from the median of so many others, in their scatter; simulated 400,000
times each, and 100,000 times from 30 on (tests/evidence/test_noise.py repeats it). It tends to 2.58."""
FEWEST = min(_FACTORS)
_CONSISTENT = 1.4826
"""1 / 0.6745, the 0.75 quantile of the normal distribution (Rousseeuw and Croux 1993)."""
_ROUNDING = 1e-12
"""Relative; a value that differs by less was printed and read back, not measured anew."""


class Shift(StrEnum):
    """How a value lies against those before it."""

    WITHIN = "within"
    ABOVE = "above"
    BELOW = "below"
    NOT_FINITE = "not finite"
    UNKNOWN = "too few"
    """There are too few earlier runs to tell."""


@final
@dataclass(frozen=True, slots=True)
class Noise:
    """What earlier runs measured."""

    count: int
    """How many finite values there are."""
    middle: float
    """Their median; NaN where there is none."""
    scatter: float
    """In the measurement's unit."""
    low: float
    """Below this a value is no noise; NaN where there are too few values to tell."""
    high: float

    @classmethod
    def of(cls, earlier: Iterable[float]) -> Noise:
        """The noise of earlier values; those that are not finite are left out."""
        values = [float(value) for value in earlier if math.isfinite(value)]
        if not values:
            return cls(0, math.nan, math.nan, math.nan, math.nan)
        middle = median(values)
        scatter = _CONSISTENT * median(abs(value - middle) for value in values)
        if len(values) < FEWEST:
            return cls(len(values), middle, scatter, math.nan, math.nan)
        # More than half of the values are equal: what little they scatter says nothing, so all that was seen is noise.
        reach = _FACTORS[max(count for count in _FACTORS if count <= len(values))] * scatter
        low, high = (middle - reach, middle + reach) if scatter > 0 else (min(values), max(values))
        rounding = _ROUNDING * max(map(abs, values))
        return cls(len(values), middle, scatter, low - rounding, high + rounding)

    def shift(self, value: float) -> Shift:
        """How a value lies against these."""
        if not math.isfinite(value):
            return Shift.NOT_FINITE
        if math.isnan(self.low):
            return Shift.UNKNOWN
        return Shift.BELOW if value < self.low else Shift.ABOVE if value > self.high else Shift.WITHIN
