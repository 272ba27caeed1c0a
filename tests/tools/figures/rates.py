"""A document with a table, figures of it, and a contract that names them, for tests to break in one place at a time."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

from harness.tools.figures.figures import Figures, figures_of
from tests.contracts import document

__all__ = ["TEXT", "bound", "figures", "written"]

TEXT = """\
# Benchmarks

Before: ~20,000 iterations (35 % of a day), one loss in
1e-5.

## Rates

| Backend | Rate | Speedup |
|---------|------|---------|
| current | 14,455 tok/s | 1.00x |
| liger | 14,202 tok/s | 0.98x |
| triton | **16,950 tok/s** | **1.17x** |

## Memory

| Backend | Rate |
|---------|------|
| liger | 65,939 MB |
"""

_FIGURES: dict[str, Any] = {
    "documents": {
        "benchmarks": {
            "uri": "https://example.org/benchmarks",
            "names": ["the benchmarks"],
            "sha256": hashlib.sha256(TEXT.encode()).hexdigest(),
        },
        "paper": {"uri": "https://example.org/paper", "names": ["the paper"], "unchecked": "nobody keeps a copy"},
    },
    "figures": {
        "liger": {
            "document": "benchmarks", "label": "liger Speedup", "called": "liger", "value": 0.98, "unit": "x",
            "relation": "equal", "printed": "0.98x", "section": "Rates", "row": "liger", "column": "Speedup",
        },
        "triton": {
            "document": "benchmarks", "label": "triton Speedup", "called": "triton", "value": 1.17, "unit": "x",
            "relation": "at most", "printed": "1.17x", "section": "Rates", "row": "triton", "column": "Speedup",
        },
        "iterations": {
            "document": "benchmarks", "label": "before", "called": ["steps", "rounds"], "value": 20000,
            "unit": "iterations", "relation": "about", "within": "10 %", "printed": "~20,000 iterations",
            "anchor": "Before: ~20,000 iterations",
        },
        "share": {
            "document": "benchmarks", "label": "of a day", "called": "share", "value": 35, "unit": "%",
            "relation": "at least", "printed": "35 %", "anchor": "35 % of a day",
        },
        "loss": {
            "document": "benchmarks", "label": "loss", "value": 1e-5, "unit": "ratio", "relation": "at most",
            "printed": "1e-5", "anchor": "loss in 1e-5",
        },
        "memory": {
            "document": "paper", "label": "memory", "value": 2, "unit": "GiB", "relation": "less than",
            "printed": "2 GiB", "place": "table 1",
        },
    },
}  # fmt: skip


def figures(**changes: Any) -> dict[str, Any]:
    """The content of figures.json, with keys of figures replaced: `liger={"value": 0.97}`. `...` leaves one out."""
    whole = copy.deepcopy(_FIGURES)
    for name, change in changes.items():
        figure = {**whole["figures"][name], **change}
        whole["figures"][name] = {key: value for key, value in figure.items() if value is not ...}
    return whole


def written(folder: Path, content: Any = None) -> Figures:
    """Write figures.json into a folder and read it; by default, the valid one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "figures.json").write_text(json.dumps(figures() if content is None else content), encoding="utf-8")
    found = figures_of(folder)
    assert found is not None
    return found


def bound(measurements: dict[str, Any], named: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The valid contract with these measurements added, and with the figures that it names."""
    content = document(figures=named or ..., **changes)
    content["observation"]["properties"].update(measurements)
    return content
