"""Verified bundles for reports, with the records of those that are accepted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.evidence.bundle import Bundle
from harness.evidence.findings import Verification
from harness.judging.record import Record
from harness.report import finding_text
from harness.report.escaping import printable

__all__ = ["BundleResult", "bundle_results"]


@dataclass(frozen=True)
class BundleResult:
    """One bundle with what verifying it found."""

    verification: Verification
    record: Record | None
    """None if the bundle is unsound or not accepted, because its record then counts for nothing."""

    @property
    def path(self) -> Path:
        """The bundle's folder."""
        return self.verification.path

    @property
    def name(self) -> str:
        """The claim's id, or the name of the bundle's folder if the id is unknown."""
        return printable(self.verification.id or self.path.name)

    @property
    def problem(self) -> str:
        """Why the record counts for nothing."""
        standing = self.verification.standing.lower().replace("_", " ")
        return printable(f"{standing}: {finding_text.problem(self.verification)}")


def bundle_results(verifications: Iterable[Verification]) -> list[BundleResult]:
    """Return the bundles by claim, the newest first within a claim."""
    results = [_result(verification) for verification in verifications]
    results.sort(key=lambda one: one.record.started if one.record else "", reverse=True)
    return sorted(results, key=lambda one: one.name)


def _result(verification: Verification) -> BundleResult:
    if not verification.accepted:
        return BundleResult(verification, None)
    return BundleResult(verification, Bundle(verification.path).record)
