"""The reports that `harness report --NAME TARGET` writes: entry points of the group `harness.reports`, ours and others.

[project.entry-points."harness.reports"]
csv = "verdicts:REPORT"

REPORT = TextReport("the verdicts, one a line", render)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from harness.contract.project import Project
from harness.evidence.findings import Verification
from harness.evidence.verification import Against
from harness.report.atomic_file import write_file
from harness.report.bundle_results import BundleResult, bundle_results

if TYPE_CHECKING:
    from harness.running.events import Handler

__all__ = ["GROUP", "STDOUT", "Evidence", "Report", "TextReport"]

GROUP = "harness.reports"
STDOUT = Path("-")


@dataclass(frozen=True)
class Evidence:
    """The bundles of a report, verified."""

    verifications: Sequence[Verification]
    against: Against
    """What the bundles were checked against."""
    project: Project | None
    """The project of the current folder."""

    @cached_property
    def bundles(self) -> list[BundleResult]:
        """The bundles by claim, with the records of those that are accepted."""
        return bundle_results(self.verifications, self.project)


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


@dataclass(frozen=True)
class TextReport:
    """A report in one file, or on standard output."""

    about: str
    render: Callable[[Sequence[BundleResult]], str]
    """Returns the text. The same bundles give the same text."""
    handler: Callable[[Path], Handler] | None = None
    """Keeps the file current while `harness run` lasts."""

    def check(self, target: Path) -> None:
        """Refuse a folder."""
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a folder; name a file")

    def write(self, evidence: Evidence, target: Path) -> Path:
        """Write the text."""
        text = self.render(evidence.bundles)
        if target == STDOUT:
            click.echo(text, nl=False)
        else:
            write_file(target, text)
        return target
