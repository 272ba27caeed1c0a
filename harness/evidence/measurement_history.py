"""The measurements of a claim over time and devices, as a pandas table.

    table = measured(entries, index.measurements(evidence, claim))
    table[table["measurement"] == "final_loss"].plot("started", "value")

Runs with the same class of device, profile, subject and overridden parameters are a *series*. Only runs of one series
are compared. An external trainer with other parameters of its own is another subject. The earlier values of the series
are the noise for a run's value; NOT_MEASURED runs do not count. A run whose trial never started has no row.

Earlier runs, not a fixed percentage, decide whether a measurement moved:

    noise = Noise.of([1.81, 1.80, 1.83, 1.79, 1.82, 1.80])
    noise.shift(1.95)   # Shift.ABOVE

The earlier values give a median and a scatter. The scatter is 1.4826 times the median distance from the median. For
normal noise it estimates the standard deviation, and it tolerates a few outliers. A value within a number of scatters
of the median is noise. That number depends on the number of earlier values, so that one of a hundred healthy runs
counts as a shift. With fewer than five earlier values there is no answer. A shift may be better or worse.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, final

from harness.base import strictjson
from harness.base.vocabulary import Verdict
from harness.evidence.index import Entry, Measurement

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FEWEST",
    "TRIAL_SECONDS",
    "Noise",
    "Shift",
    "earlier_noise",
    "measured",
    "newest_of_series",
    "ran",
    "series",
]

TRIAL_SECONDS = "trial_seconds"
"""The wall-clock time of the subject's trial. Every run has it, in addition to the measurements of its contract."""

_COLUMNS = (
    "started", "device", "profile", "series", "verdict", "proven", "commit", "run", "measurement", "value", "unit",
    "earlier", "median", "scatter", "shift",
)  # fmt: skip


def ran(entry: Entry) -> bool:
    """Whether the subject's trial started; a machine that lacks a requirement starts none."""
    return entry.trial_seconds > 0


def series(entry: Entry) -> str:
    """Return the name of a run's series, for people: device, profile, changed parameters and subject."""
    parts = [str(entry.device_class), f"{entry.profile} profile"]
    changed = {**_own(entry), **entry.overrides}
    parts += [f"{name}={json.dumps(strictjson.tag_nonfinite(value))}" for name, value in sorted(changed.items())]
    return ", ".join([*parts, f"subject {entry.judged}"])


def _own(entry: Entry) -> dict[str, Any]:
    """Return the parameters of an external trainer, without the directory, which differs for each finished run."""
    own = entry.subject_parameters.items()
    return {name: value for name, value in own if name not in ("trainer", "dir") and value != ""}


def measured(entries: Iterable[Entry], values: Mapping[Path, Mapping[str, Measurement]]) -> pd.DataFrame:
    """Return a table with a row for every measurement of every run, oldest first.

    Columns of the run: started (UTC), device, profile, series, verdict, proven, commit, run, measurement, value, unit.
    Columns of the earlier values of its series: earlier (their number), median, scatter, and shift (see `Shift`).

    Args:
        entries: runs of one claim.
        values: the measurements of each bundle, by its folder.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    before: dict[tuple[str, str], list[float]] = {}
    for entry in sorted(filter(ran, entries), key=lambda one: (one.when, one.run)):
        comparable = series(entry)
        known = {
            "started": entry.when,
            "device": str(entry.device_class),
            "profile": entry.profile,
            "series": comparable,
            "verdict": str(entry.verdict),
            "proven": entry.proven,
            "commit": str(entry.commit.get("revision") or ""),
            "run": entry.run,
        }
        for name, one in {**values.get(entry.path, {}), TRIAL_SECONDS: Measurement(entry.trial_seconds, "s")}.items():
            earlier = before.setdefault((comparable, name), [])
            noise = Noise.of(earlier)
            rows.append(
                {
                    **known,
                    "measurement": name,
                    "value": float(one.value),
                    "unit": one.unit,
                    "earlier": noise.count,
                    "median": noise.middle,
                    "scatter": noise.scatter,
                    "shift": str(noise.shift(float(one.value))),
                }
            )
            if entry.verdict is not Verdict.NOT_MEASURED:
                earlier.append(float(one.value))
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def newest_of_series(table: pd.DataFrame) -> pd.DataFrame:
    """Return the newest row of every measurement of every series, from a table of `measured`."""
    return table.groupby(["series", "measurement"], sort=False).tail(1)


def earlier_noise(
    of: Entry, entries: Sequence[Entry], values: Mapping[Path, Mapping[str, Measurement]]
) -> dict[str, Noise]:
    """Return the noise of each measurement, from the runs of the same series that started before `of`."""
    found: dict[str, list[float]] = {}
    comparable = series(of)
    for entry in entries:
        if entry.id != of.id or entry.verdict is Verdict.NOT_MEASURED:
            continue
        if entry.when < of.when and series(entry) == comparable:
            for name, one in values.get(entry.path, {}).items():
                found.setdefault(name, []).append(float(one.value))
            found.setdefault(TRIAL_SECONDS, []).append(entry.trial_seconds)
    return {name: Noise.of(numbers) for name, numbers in found.items()}


_FACTORS = {
    5: 14.34, 6: 8.02, 7: 7.73, 8: 5.92, 9: 5.78, 10: 4.95, 12: 4.43, 15: 4.06, 20: 3.51, 30: 3.17, 50: 2.93, 100: 2.74,
}  # fmt: skip
"""By number n of earlier values: the 0.99 quantile of the distance of a normal value from the median of n others, in
units of their scatter. Simulated 400,000 times for each n below 30, and 100,000 times from 30 on;
tests/evidence/test_noise.py repeats it. The limit for large n is 2.58."""
FEWEST = min(_FACTORS)
_CONSISTENT = 1.4826
"""1 / 0.6745, where 0.6745 is the 0.75 quantile of the normal distribution (Rousseeuw and Croux 1993)."""
_ROUNDING = 1e-12
"""Relative tolerance: a smaller difference comes from printing a value and reading it back."""


class Shift(StrEnum):
    """Where a value lies relative to the earlier values."""

    WITHIN = "within"
    ABOVE = "above"
    BELOW = "below"
    NOT_FINITE = "not finite"
    UNKNOWN = "too few"
    """There are too few earlier runs to decide."""


@final
@dataclass(frozen=True, slots=True)
class Noise:
    """What earlier runs measured."""

    count: int
    """The number of finite values."""
    middle: float
    """Their median; NaN if there are no values."""
    scatter: float
    """In the measurement's unit."""
    low: float
    """A value below this is a shift; NaN if there are too few values to decide."""
    high: float
    """A value above this is a shift; NaN if there are too few values to decide."""

    @classmethod
    def of(cls, earlier: Iterable[float]) -> Noise:
        """Return the noise of earlier values. Values that are not finite are left out."""
        values = [float(value) for value in earlier if math.isfinite(value)]
        if not values:
            return cls(0, math.nan, math.nan, math.nan, math.nan)
        middle = median(values)
        scatter = _CONSISTENT * median(abs(value - middle) for value in values)
        if len(values) < FEWEST:
            return cls(len(values), middle, scatter, math.nan, math.nan)
        # If the scatter is 0, more than half of the values are equal, and the scatter says nothing about the others.
        # Then the whole range of the values is noise.
        reach = _FACTORS[max(count for count in _FACTORS if count <= len(values))] * scatter
        low, high = (middle - reach, middle + reach) if scatter > 0 else (min(values), max(values))
        rounding = _ROUNDING * max(map(abs, values))
        return cls(len(values), middle, scatter, low - rounding, high + rounding)

    def shift(self, value: float) -> Shift:
        """Return where a value lies relative to the earlier values."""
        if not math.isfinite(value):
            return Shift.NOT_FINITE
        if math.isnan(self.low):
            return Shift.UNKNOWN
        return Shift.BELOW if value < self.low else Shift.ABOVE if value > self.high else Shift.WITHIN
