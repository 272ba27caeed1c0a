"""How often runs of the same code came out differently: the flakiness of a claim.

    for one in repeats(entries):
        print(one.series, one.passed, one.failed, one.interval, one.is_flaky)

Runs are repeats of one another if they have the same contract, the same sources and the same series (class of device,
profile, changed parameters and subject). Nothing here changes a verdict or a status: a FAIL stands, however rare it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, final

from harness.base.vocabulary import Verdict
from harness.evidence.index import Entry
from harness.evidence.measurement_history import ran, series

__all__ = ["Repeats", "repeats", "wilson"]

_QUANTILE: Final = 1.959963984540054
"""The 0.975 quantile of the normal distribution, for an interval of 95 %."""


@final
@dataclass(frozen=True, slots=True)
class Repeats:
    """The verdicts of the runs of one code on one class of device."""

    series: str
    first: datetime
    last: datetime
    passed: int
    failed: int
    undecided: int
    """Runs that are VOID or NOT_MEASURED. They do not count in the interval."""

    @property
    def is_flaky(self) -> bool:
        """Whether the same code passed and failed."""
        return self.passed > 0 and self.failed > 0

    @property
    def interval(self) -> tuple[float, float]:
        """The Wilson interval (95 %) of the share of runs that FAIL, of those that PASS or FAIL."""
        return wilson(self.failed, self.passed + self.failed)


def wilson(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, after Wilson (1927). Without any case it is 0 to 1."""
    if total == 0:
        return 0.0, 1.0
    share, square = count / total, _QUANTILE**2 / total
    middle = share + square / 2
    reach = math.sqrt(square * (share * (1 - share) + square / 4))
    low, high = ((middle + side * reach) / (1 + square) for side in (-1, 1))
    return (0.0 if count == 0 else low), (1.0 if count == total else high)


def repeats(entries: Iterable[Entry]) -> list[Repeats]:
    """Return the repeats of one claim by series and code, the newest first. Runs without a trial do not count."""
    grouped: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Entry]] = {}
    for entry in filter(ran, entries):
        key = (series(entry), entry.contract_digest, tuple(sorted(entry.sources.items())))
        grouped.setdefault(key, []).append(entry)
    found = [_counted(name, runs) for (name, *_), runs in grouped.items()]
    return sorted(found, key=lambda one: one.last, reverse=True)


def _counted(name: str, runs: Sequence[Entry]) -> Repeats:
    verdicts = [entry.verdict for entry in runs]
    passed, failed = verdicts.count(Verdict.PASS), verdicts.count(Verdict.FAIL)
    times = [entry.when for entry in runs]
    return Repeats(name, min(times), max(times), passed, failed, len(runs) - passed - failed)
