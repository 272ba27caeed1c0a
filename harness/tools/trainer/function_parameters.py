"""The parameters of a function that builds a Trainer, read from its source text. Nothing is imported."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from harness.base import regular_file

__all__ = ["GIVEN", "own_parameters"]

GIVEN = frozenset({"setting", "seed", "device", "output_dir", "trainer", "self"})
"""Names that the adapter gives to a function, and that no option sets."""


def own_parameters(path: Path, name: str) -> dict[str, Any]:
    """The parameters with a literal default, such as `rows=640` or `folder=""`; none if the name is no function.

    Raises:
        OSError, SyntaxError, ValueError: the file is not readable Python.
    """
    tree = ast.parse(regular_file.read(path), str(path))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            placed = [*node.args.posonlyargs, *node.args.args]
            defaults = dict(zip(reversed(placed), reversed(node.args.defaults), strict=False))
            named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            defaults |= {argument: value for argument, value in named if value is not None}
            return {
                argument.arg: value.value
                for argument, value in defaults.items()
                if argument.arg not in GIVEN
                and isinstance(value, ast.Constant)
                and isinstance(value.value, (str, int, float, bool))
            }
    return {}
