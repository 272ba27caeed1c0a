"""The measurements of a claim over time and devices, as a pandas table.

    table = measured(entries, index.measurements(evidence, claim))
    table[table["measurement"] == "final_loss"].plot("started", "value")

Runs are compared where they are of one class of device, one profile, one subject and the same overridden parameters:
these four make a *series*. Somebody else's trainer is one subject, and another one with other parameters of its own.
What was measured before a run, in its series, is the noise that it is judged against; runs that were NOT_MEASURED are
no part of that. Where nothing ran at all, there is no row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base import strictjson
from harness.base.vocabulary import Verdict
from harness.evidence.index import Entry, Measurement
from harness.evidence.noise import Noise

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TRIAL_SECONDS", "earlier_noise", "measured", "newest_of_series", "ran", "series"]

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
    the earlier values of the series: earlier (how many), median, scatter, and shift (see `harness.evidence.noise`).

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
