"""Runs the example notebook as Jupyter does, without Jupyter and its 22 packages.

    python docs/run_notebook.py        # after a change: runs every cell, and stores the outputs in the notebook

A cell may hold any Python, but no `%magic`. Its outputs are the value of its last line, and the figures that it drew.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("comparing_runs.ipynb")


def executed(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, run in order in a folder. An exception of a cell is raised."""
    import matplotlib as mpl

    mpl.use("agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    before = Path.cwd()
    os.chdir(folder)
    try:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count = sum("outputs" in one for one in cells) + 1
                outputs = _run("".join(cell["source"]), names, count)
                cell = {**cell, "execution_count": count, "outputs": outputs}
            cells.append(cell)
    finally:
        os.chdir(before)
    return {**notebook, "cells": cells}


def _run(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    import matplotlib.pyplot as plt

    tree = ast.parse(source)
    shown = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
        shown = ast.Expression(tree.body.pop().value)
    exec(compile(tree, f"cell {count}", "exec"), names)  # noqa: S102 — running it is the purpose
    value = None if shown is None else eval(compile(shown, f"cell {count}", "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    for number in plt.get_fignums():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", dpi=100, metadata={"Software": None})
        plt.close(number)
        png = base64.b64encode(image.getvalue()).decode("ascii")
        outputs.append({"output_type": "display_data", "metadata": {}, "data": {"image/png": png}})
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        outputs.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    return outputs


def as_markdown(notebook: dict[str, Any]) -> str:
    """Return the notebook, with the outputs that it holds, as a page. Images are part of the page."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = {kind: "".join(text) for kind, text in output["data"].items()}
            if "image/png" in data:
                parts.append(
                    f'<img alt="The figure of the cell above" src="data:image/png;base64,{data["image/png"]}">'
                )
            elif "text/html" in data:
                parts.append(f'<div class="output">{data["text/html"]}</div>')
            else:
                parts.append(f"```text\n{data['text/plain']}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    ran = executed(json.loads(NOTEBOOK.read_text(encoding="utf-8")), NOTEBOOK.parent)
    NOTEBOOK.write_text(json.dumps(ran, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
