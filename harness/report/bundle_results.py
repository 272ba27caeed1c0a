"""Bundles as reports take them: verified, and with the record of those whose verdict may be taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.evidence.bundle import Bundle
from harness.evidence.findings import Verification
from harness.judging.record import Record
from harness.report.escaping import printable

__all__ = ["BundleResult", "bundle_results"]


@dataclass(frozen=True)
class BundleResult:
    """One bundle."""

    verification: Verification
    record: Record | None
    """None where the bundle is unsound or not accepted: what its record says then counts for nothing."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.verification.path

    @property
    def name(self) -> str:
        """The claim's id; where that is not known, the bundle's folder."""
        return printable(self.verification.id or self.path.name)

    @property
    def problem(self) -> str:
        """Why its record counts for nothing."""
        return printable(f"{self.verification.standing.lower().replace('_', ' ')}: {self.verification.problem}")


def bundle_results(verifications: Iterable[Verification]) -> list[BundleResult]:
    """Verified bundles with the records of those that are accepted, newest first within a claim."""
    results = [_result(verification) for verification in verifications]
    results.sort(key=lambda one: one.record.started if one.record else "", reverse=True)
    return sorted(results, key=lambda one: one.name)


def _result(verification: Verification) -> BundleResult:
    if not verification.accepted:
        return BundleResult(verification, None)
    return BundleResult(verification, Bundle(verification.path).record)
