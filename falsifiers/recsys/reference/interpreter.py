"""Triton's kernels on a CPU: their modules, loaded once more for its interpreter."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Any

import triton

__all__ = ["interpreted"]


def interpreted(kernel: Any) -> Any:
    """Return a kernel, or a function of kernels, for the interpreter."""
    return getattr(_twin(sys.modules[kernel.__module__]), kernel.__name__)


@cache
def _twin(module: ModuleType) -> ModuleType:
    """Return a module whose functions, also those that it imports from others, are for the interpreter."""
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
            setattr(twin, name, interpreted(value))
    return twin
