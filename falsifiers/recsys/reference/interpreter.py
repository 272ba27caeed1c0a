"""Triton's kernels on a CPU: their modules are loaded again for its interpreter."""

import sys
from functools import cache
from importlib.abc import InspectLoader
from types import ModuleType
from typing import Any

import triton


def interpreted(kernel: Any) -> Any:
    """Return a kernel, or a function that launches kernels, for the interpreter."""
    return getattr(_twin(sys.modules[kernel.__module__]), kernel.__name__)


@cache
def _twin(module: ModuleType) -> ModuleType:
    """Return a copy of a module whose functions, also imported ones, are for the interpreter."""
    spec = module.__spec__
    code = spec.loader.get_code(module.__name__) if spec and isinstance(spec.loader, InspectLoader) else None
    if code is None:
        raise ImportError(f"{module.__file__} cannot be loaded")
    twin = ModuleType(f"{module.__name__}_interpreted")
    twin.__file__, twin.__package__ = module.__file__, module.__package__
    before = triton.knobs.runtime.interpret
    triton.knobs.runtime.interpret = True
    try:
        exec(code, vars(twin))  # noqa: S102  # the module's own code, with the patches of a mutant
    finally:
        triton.knobs.runtime.interpret = before
    for name, value in list(vars(twin).items()):
        if isinstance(value, triton.JITFunction):
            setattr(twin, name, interpreted(value))
    return twin
