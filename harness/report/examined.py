"""Bundles as reports take them: verified, and with the record of those whose verdict may be taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.evidence.bundle import Bundle
from harness.evidence.findings import Verification
from harness.judging.record import Record
from harness.report.escaping import printable

__all__ = ["Examined", "examine"]


@dataclass(frozen=True)
class Examined:
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


def examine(verifications: Iterable[Verification]) -> list[Examined]:
    """Verified bundles with the records of those that are accepted, newest first within a claim."""
    examined = [_examine(verification) for verification in verifications]
    examined.sort(key=lambda one: one.record.started if one.record else "", reverse=True)
    return sorted(examined, key=lambda one: one.name)


def _examine(verification: Verification) -> Examined:
    if not verification.accepted:
        return Examined(verification, None)
    return Examined(verification, Bundle(verification.path).record)
