"""Runs that say that they start in the future: a clock was ahead, and nobody knows when they were."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from harness.evidence.findings import Code, Finding
from harness.evidence.layout import RECORD
from harness.judging.record import Record

__all__ = ["clock_ahead", "is_ahead"]

_SLACK = timedelta(hours=1)
"""By how much two clocks may differ before anybody is told: machines without network time are minutes apart."""


def is_ahead(started: datetime, now: datetime) -> bool:
    """Whether a time is later than `now` by more than clocks differ."""
    return started > now + _SLACK


def clock_ahead(record: Record, now: datetime) -> Iterator[Finding]:
    """The remark on a record from the future; a `started` that is no point in time is somebody else's to tell."""
    try:
        started = datetime.fromisoformat(record.started)
    except ValueError:
        return
    if is_ahead(started, now):
        said = f"it says {record.started}, and by this machine's clock it is {now.isoformat(timespec='seconds')}"
        order = "a PASS counts as the oldest of its claim's runs, a FAIL or VOID as the newest"
        yield Finding(Code.CLOCK_AHEAD, RECORD, f"{said}: one of the two clocks is wrong; {order}", "/started")
