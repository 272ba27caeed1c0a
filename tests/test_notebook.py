"""The example notebook runs from its first cell to its last on this repository's evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import run_notebook

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    """The notebook as it is in the repository."""
    document: dict[str, Any] = json.loads((DOCS / "comparing_runs.ipynb").read_text(encoding="utf-8"))
    return document


def shown(notebook: dict[str, Any]) -> list[list[list[str]]]:
    """The kinds of the outputs of each code cell."""
    return [[sorted(output["data"]) for output in cell["outputs"]] for cell in notebook["cells"] if "outputs" in cell]


def test_every_cell_runs_and_shows_what_the_notebook_holds(notebook: dict[str, Any]) -> None:
    """After a change, `python docs/run_notebook.py` stores the outputs."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    ran = run_notebook.executed(notebook, DOCS)
    assert shown(ran) == shown(notebook)
    assert ["image/png"] in [kinds for outputs in shown(ran) for kinds in outputs]


def test_a_cell_that_raises_is_not_passed_over() -> None:
    """Its exception reaches the caller."""
    pytest.importorskip("matplotlib")
    cells = [{"cell_type": "code", "source": ["1 / 0"], "outputs": []}]
    with pytest.raises(ZeroDivisionError):
        run_notebook.executed({"cells": cells}, DOCS)


def test_the_page_has_every_cell_and_output(notebook: dict[str, Any]) -> None:
    """Tables are HTML, and the figure is within the page."""
    page = run_notebook.as_markdown(notebook)
    assert page.count("```python\n") == sum(cell["cell_type"] == "code" for cell in notebook["cells"])
    assert page.count("data:image/png;base64,") == 1
    assert page.count("<table") >= 3
