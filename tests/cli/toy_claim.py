"""The claim of tests/execution/projects.py, and what its runs leave."""

from __future__ import annotations

import json
from pathlib import Path

CLAIM = "F-TOY-SORT-001"


def bundles(folder: Path) -> list[Path]:
    """The sealed bundles of the claim."""
    place = folder / "evidence" / "TOY-1" / CLAIM
    return sorted(path for path in place.glob("*") if not path.name.startswith(".")) if place.is_dir() else []


def record(folder: Path) -> dict[str, object]:
    """The record of the only bundle."""
    (bundle,) = bundles(folder)
    document: dict[str, object] = json.loads((bundle / "record.json").read_text())
    return document
