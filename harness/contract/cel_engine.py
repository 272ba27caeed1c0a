"""The CEL engine without its package's command line.

`import cel` also imports typer, rich and prompt_toolkit, which takes a tenth of a second. The engine itself is one
extension module.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import PathFinder
from threading import Lock
from typing import Any

__all__ = ["engine"]

_EXTENSION = "cel.cel"
_loading = Lock()


def engine() -> Any:
    """The module with `compile` and `Context`: the extension module of the package `cel`."""
    module = sys.modules.get(_EXTENSION)
    return module if module is not None else _load()


def _load() -> Any:
    with _loading:  # the extension cannot be initialised twice in a process
        if _EXTENSION in sys.modules:
            return sys.modules[_EXTENSION]
        package = importlib.util.find_spec("cel")
        spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations) if package else None
        if spec is None or spec.loader is None:
            return importlib.import_module("cel")  # another layout: import the whole package
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[_EXTENSION] = module
        return module
