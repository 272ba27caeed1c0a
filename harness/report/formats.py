"""The reports of `harness report --NAME TARGET`: entry points of the group `harness.reports`.

`harness.tools.text_report.TextReport` implements reports in a single file.
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
    """The trusted keys and the project."""
    project: Project | None
    """The project of the current folder."""


class Report(Protocol):
    """The interface of an entry point of the group."""

    @property
    def about(self) -> str:
        """A description for `harness report --help`."""

    def check(self, target: Path) -> None:
        """Check a target before any bundle is verified.

        Raises:
            OSError: the report cannot be written to it.
        """

    def write(self, evidence: Evidence, target: Path) -> Path:
        """Write the report, and return the file that a reader opens first.

        Raises:
            OSError: the target cannot be written.
        """
