"""The CEL engine, without the command line that its package brings.

`import cel` also imports typer, rich and prompt_toolkit, a tenth of a second of every start; the language itself is one
extension module.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

__all__ = ["engine"]


@cache
def engine() -> Any:
    """The module that has `compile`: the extension inside the package `cel`, or the package where it has none."""
    package = importlib.util.find_spec("cel")
    spec = PathFinder.find_spec("cel.cel", package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None:
        return importlib.import_module("cel")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
