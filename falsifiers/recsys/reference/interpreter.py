"""Kernels on a CPU: their modules, loaded once more for Triton's interpreter."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import ModuleType

import triton

__all__ = ["interpreted"]


@cache
def interpreted(module: ModuleType) -> ModuleType:
    """Return a module of kernels for the interpreter, with functions of other such modules that it imports."""
    name = f"{module.__name__}_interpreted"
    spec = importlib.util.spec_from_file_location(name, module.__file__)
    if spec is None or spec.loader is None:
        raise ImportError(f"{module.__file__} cannot be loaded")
    twin = importlib.util.module_from_spec(spec)
    before = triton.knobs.runtime.interpret
    triton.knobs.runtime.interpret = True
    try:
        spec.loader.exec_module(twin)
    finally:
        triton.knobs.runtime.interpret = before
    for name, value in list(vars(twin).items()):
        if isinstance(value, triton.JITFunction):
            setattr(twin, name, getattr(interpreted(sys.modules[value.__module__]), name))
    return twin
