"""How long the runs of claims took, according to their evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.base.vocabulary import Verdict
from harness.evidence.index import Entry

__all__ = ["past_runs", "whole_runs"]


def whole_runs(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the runs that measured something with the contract's parameters, the oldest first."""
    for entry in sorted(entries, key=lambda one: one.started):
        if entry.trial_seconds > 0 and entry.verdict is not Verdict.NOT_MEASURED and not entry.overrides:
            yield entry


def past_runs(entries: Iterable[Entry]) -> dict[tuple[str, str, str, str], float]:
    """Return the seconds of the newest run by claim, profile, class of device and subject. Its mutants ran, too."""
    return {
        (entry.id, entry.profile, str(entry.device_class), entry.subject): entry.seconds
        for entry in whole_runs(entries)
        if not entry.mutants_skipped
    }
