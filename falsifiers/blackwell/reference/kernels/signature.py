"""The C types of a kernel's parameters, parsed from its text, as ctypes types."""

import ctypes
import re
from functools import cache
from typing import Any, Final

from falsifiers.blackwell.reference.kernels.spec import KernelSpec

_SCALARS: Final[dict[str, Any]] = {"int": ctypes.c_int, "long long": ctypes.c_longlong, "float": ctypes.c_float}


@cache
def signature(spec: KernelSpec) -> tuple[Any, ...]:
    """The types of the kernel's parameters in order; ValueError if the text declares no KERNEL(...)."""
    match = re.search(r"\bKERNEL\(([^)]*)\)", spec.text)
    if match is None:
        raise ValueError(f"{spec.source}.cu declares no KERNEL(…)")
    return tuple(_type(parameter.strip()) for parameter in match[1].split(","))


def _type(parameter: str) -> Any:
    declared, _, _name = parameter.rpartition(" ")
    return ctypes.c_void_p if declared.endswith("*") else _SCALARS[declared]
