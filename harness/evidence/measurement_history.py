"""The measurements of a claim over time and devices, as a pandas table.

    table = measured(entries, index.measurements(evidence, claim))
    table[table["measurement"] == "final_loss"].plot("started", "value")

Runs are compared where they are of one class of device, one profile, one subject and the same overridden parameters:
these four make a *series*. Somebody else's trainer is one subject, and another one with other parameters of its own.
What was measured before a run, in its series, is the noise that it is judged against; runs that were NOT_MEASURED are
no part of that. Where nothing ran at all, there is no row.

Whether a measurement moved is judged against earlier runs, not against a fixed percentage:

    noise = Noise.of([1.81, 1.80, 1.83, 1.79, 1.82, 1.80])
    noise.shift(1.95)   # Shift.ABOVE

The earlier values give a median and a scatter: 1.4826 times the median distance from it, which for normal noise
estimates its standard deviation and tolerates a few outliers. A value within so many scatters of the median is noise.
The number of scatters depends on the number of earlier values: one of a hundred healthy runs is called a shift. With
fewer than five earlier values there is no answer. The direction of a shift says nothing about better or worse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base import strictjson
from harness.base.vocabulary import Verdict
from harness.evidence.index import Entry, Measurement

if TYPE_CHECKING:
    import pandas as pd

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import final

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
"""The wall-clock time of the subject's trial, which every run has beside what its contract asks for."""

_COLUMNS = (
    "started", "device", "profile", "series", "verdict", "proven", "commit", "run", "measurement", "value", "unit",
    "earlier", "median", "scatter", "shift",
)  # fmt: skip


def ran(entry: Entry) -> bool:
    """Whether the subject's trial ran at all; the machine may have been in the way of it."""
    return entry.trial_seconds > 0


def series(entry: Entry) -> str:
    """The name of a run's series, for people: what it ran on, in which profile, and what was otherwise than usual."""
    parts = [str(entry.device_class), f"{entry.profile} profile"]
    changed = {**_own(entry), **entry.overrides}
    parts += [f"{name}={json.dumps(strictjson.tag_nonfinite(value))}" for name, value in sorted(changed.items())]
    return ", ".join([*parts, f"subject {entry.judged}"])


def _own(entry: Entry) -> dict[str, Any]:
    """The parameters of somebody else's trainer; not the directory, which is another one for each run that is over."""
    own = entry.subject_parameters.items()
    return {name: value for name, value in own if name not in ("trainer", "dir") and value != ""}


def measured(entries: Iterable[Entry], values: Mapping[Path, Mapping[str, Measurement]]) -> pd.DataFrame:
    """A row for every measurement of every run, oldest first.

    The columns: started (UTC), device, profile, series, verdict, proven, commit, run, measurement, value, unit; and of
    the earlier values of the series: earlier (how many), median, scatter, and shift (see
    `harness.evidence.measurement_history`).

    Args:
        entries: of one claim.
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
    """Of a table of `measured`, the newest row of every measurement of every series."""
    return table.groupby(["series", "measurement"], sort=False).tail(1)


def earlier_noise(
    of: Entry, entries: Sequence[Entry], values: Mapping[Path, Mapping[str, Measurement]]
) -> dict[str, Noise]:
    """The noise of each measurement in the runs of a run's series that started before it."""
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
