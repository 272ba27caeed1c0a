"""Lets library functions that have no `Trial` write to the log of the running trial. A falsifier calls `Trial.log`.

log(f"checks the steps {chosen}", topic="steps to check")
"""

from __future__ import annotations

from harness.authoring.reports import Logged, Report

__all__ = ["HYPOTHESIS", "LONGEST", "log", "log_to"]

HYPOTHESIS = ".hypothesis"
"""Hypothesis's folder in the workspace. The log does not list its files."""
LONGEST = 2_000
"""Maximum characters of a line. The rest is dropped."""
_reports: list[Report] = []


def log_to(report: Report) -> None:
    """Send the log lines of this process to `report`."""
    _reports[:] = [report]


def log(text: str, topic: str = "") -> None:
    """Write a line, if this process runs a trial. The log keeps only a few lines of each topic."""
    for report in _reports:
        report(Logged(text[:LONGEST], topic))
