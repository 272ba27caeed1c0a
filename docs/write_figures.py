"""The measurements of claims that README.md and docs/ state. Before each stands a comment that says where it is from.

    <!-- F-PD-SHARD-FLOOR-001: self.per_device_gib -->4.3 GiB

The expression is CEL, as in a contract's rules: `self` has the measurements, `record` the bundle's record.

    python docs/write_figures.py

writes the figures of the newest bundles in the full profile, with as many decimals as the page has, and prints those
that changed. tests/test_docs.py compares the pages with the bundles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from harness.base.vocabulary import Verdict
from harness.contract.expression import engine
from harness.evidence.bundle import Bundle
from harness.evidence.bundle_layout import OBSERVATION, RECORD
from harness.evidence.index import Entry, read

__all__ = ["PAGES", "FigureError", "figures", "written"]

_ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))
_FIGURE: Final = re.compile(r"<!-- (F-[A-Z0-9-]+-\d{3}): (.+?) -->(-?\d+(?:,\d{3})*(?:\.(\d+))?)")


class FigureError(ValueError):
    """A claim has no bundle, or its bundle does not have the measurement. The text names the figure."""


def figures(text: str) -> int:
    """How many figures of a page come from bundles."""
    return len(_FIGURE.findall(text))


def written(text: str) -> str:
    """Return a page with the figures of the newest bundles. Raises FigureError if one has no source."""
    return _FIGURE.sub(lambda found: f"{found[0].removesuffix(found[3])}{_value(found)}", text)


def _value(found: re.Match[str]) -> str:
    claim, expression, _, decimals = found.groups()
    documents = _documents(claim)
    try:
        value = float(engine().compile(expression).execute(documents))
    except (ValueError, TypeError, RuntimeError, LookupError) as error:
        raise FigureError(f"{claim}: {expression}: {error}") from error
    return f"{value:,.{len(decimals or '')}f}"


@cache
def _documents(claim: str) -> dict[str, Any]:
    """What an expression can read: all numbers are floats, because CEL does not mix integers and floats."""
    newest = max(_usable(claim), key=lambda entry: entry.started, default=None)
    if newest is None:
        raise FigureError(f"{claim} has no bundle of the full profile")
    observation, record = (
        json.loads(Bundle(newest.path).content(part), parse_int=float) for part in (OBSERVATION, RECORD)
    )
    return {"self": observation["measurements"], "record": record}


def _usable(claim: str) -> Iterator[Entry]:
    """The bundles of a claim in its full profile, with the parameters and the subject of its contract."""
    for entry in _entries():
        is_own = not (entry.overrides or entry.subject_parameters or entry.verdict is Verdict.NOT_MEASURED)
        if entry.id == claim and entry.profile == "full" and is_own:
            yield entry


@cache
def _entries() -> tuple[Entry, ...]:
    return read(_ROOT / "evidence").entries


def main() -> None:
    """Write the figures into the pages."""
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        page.write_text(new := written(old), encoding="utf-8")
        for before, after in zip(_FIGURE.finditer(old), _FIGURE.finditer(new), strict=True):
            if before[3] != after[3]:
                print(f"{page.name}: {before[1]}: {before[3]} is now {after[3]}")


if __name__ == "__main__":
    main()
