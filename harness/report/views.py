"""The views that every bundle carries: what its other files say, for CI, for a pull request, and for a browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from harness.record import Record
from harness.report import junit, summary
from harness.report.html import bundle_page
from harness.report.html.contents import Contents

__all__ = ["VIEWS"]


def _page(record: Record, folder: Path) -> str:
    """A page that stands alone; it is read from the files beside it, as `harness report` would."""
    return bundle_page.render(Contents.read(folder), None, bundle_page.BESIDE)


VIEWS: Mapping[str, Callable[[Record, Path], str]] = {
    "junit.xml": lambda record, folder: junit.render(record),
    "summary.md": lambda record, folder: summary.render(record),
    "report.html": _page,
}
"""By file name, what writes it from the record and the folder that has all other files but the views."""
