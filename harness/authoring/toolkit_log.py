"""Lines of the toolkit in the log of the trial that this process runs.

    log(f"checks the steps {chosen}", topic="steps to check")

Functions of the toolkit get no trial. A falsifier calls `Trial.log`.
"""

from __future__ import annotations

from harness.authoring.reports import Logged, Report

__all__ = ["HYPOTHESIS", "LONGEST", "log", "log_to"]

HYPOTHESIS = ".hypothesis"
"""The folder in the workspace for what hypothesis keeps. The log does not list its files."""
LONGEST = 2_000
"""The most characters of a line that are sent."""
_reports: list[Report] = []


def log_to(report: Report) -> None:
    """Send the lines of this process to its trial's log."""
    _reports[:] = [report]


def log(text: str, topic: str = "") -> None:
    """Write a line, if this process runs a trial.

    Args:
        topic: of many lines with the same topic, the log keeps a few.
    """
    for report in _reports:
        report(Logged(text[:LONGEST], topic))
