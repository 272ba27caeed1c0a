"""The reports that `harness report --NAME TARGET` writes: entry points of the group `harness.reports`, ours and others.

One in a single file is a `harness.tools.text_report.TextReport`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.contract.project import Project
from harness.evidence.findings import Verification
from harness.evidence.verification import Against

__all__ = ["GROUP", "STDOUT", "Evidence", "Report"]

GROUP = "harness.reports"
STDOUT = Path("-")


@dataclass(frozen=True, eq=False)
class Evidence:
    """The bundles of a report, verified."""

    verifications: Sequence[Verification]
    against: Against
    """What the bundles were checked against."""
    project: Project | None
    """The project of the current folder."""


class Report(Protocol):
    """What an entry point of the group gives."""

    @property
    def about(self) -> str:
        """What it writes, for `harness report --help`."""

    def check(self, target: Path) -> None:
        """Refuse a target before any bundle is verified.

        Raises:
            OSError: it cannot take the report.
        """

    def write(self, evidence: Evidence, target: Path) -> Path:
        """Write the report, and return the file that a reader opens first.

        Raises:
            OSError: the target cannot be written.
        """
