"""The sizes that a kernel's source names, found without importing it."""

from __future__ import annotations

import ast
from typing import Final

__all__ = ["constants_of"]

_LARGEST: Final = 1 << 17


def constants_of(source: str) -> tuple[int, ...]:
    """The integers from 2 to 131072 in a Python source text: among them are the sizes of its blocks."""
    constants = {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and type(node.value) is int and 2 <= node.value <= _LARGEST
    }
    return tuple(sorted(constants))
