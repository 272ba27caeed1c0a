"""The views that every bundle carries: what its other files say, for CI, for a pull request, and for a browser.

Their writers take long to import and are wanted last, so that a run loads them with `load` while its trials work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from harness.evidence.layout import CONTRACT
from harness.judging.record import Record

__all__ = ["VIEWS", "load", "missing"]


def missing() -> str | None:
    """The package that a view needs and this interpreter lacks; None where nothing does."""
    return next((name for name in ("jinja2",) if find_spec(name) is None), None)


def load() -> None:
    """Import the writers, and compile the templates."""
    from harness.report import junit, summary  # noqa: F401
    from harness.report.html import bundle_page, templating  # noqa: F401

    for name in ("base.html.j2", "parts.html.j2", "bundle.html.j2"):
        templating.compiled(name)


def _junit(record: Record, folder: Path) -> str:
    from harness.report import junit

    return junit.render(record)


def _summary(record: Record, folder: Path) -> str:
    from harness.base import strictjson
    from harness.evidence.staleness import coverage
    from harness.report import summary

    contract = strictjson.loads((folder / CONTRACT).read_bytes())
    return summary.render(record, coverage(record, contract["subject"]))


def _page(record: Record, folder: Path) -> str:
    """A page that stands alone; it is read from the files beside it, as `harness report` would."""
    from harness.report.html import bundle_page
    from harness.report.html.contents import Contents

    return bundle_page.render(Contents.read(folder), None, bundle_page.BESIDE)


VIEWS: Mapping[str, Callable[[Record, Path], str]] = {
    "junit.xml": _junit,
    "summary.md": _summary,
    "report.html": _page,
}
"""By file name, what writes it from the record and the folder that has all other files but the views."""
