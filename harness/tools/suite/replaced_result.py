"""What stands in place of a function's result in a copy of the code under test.

Numerical tests miss these: NaN, which most comparisons let through; half of the result, which a wide tolerance lets
through; and the same numbers with a further axis, which broadcasting lets through. A result in which nothing can be
replaced raises, which fails the test: only what is replaced can go unnoticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["REPLACEMENTS", "replaced"]


def _axis(value: Any) -> Any:
    return value[None] if getattr(value, "shape", ()) else value


REPLACEMENTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "NaN": lambda value: value * math.nan,
    "half": lambda value: value if _all(value == 0) else value * 0.5,
    "a further axis": _axis,
}
"""What a floating number, array or tensor is replaced by, by name. The same object if it cannot be replaced so."""


def replaced(name: str, result: Any) -> Any:
    """Return what a function returns instead of its result. The copies of the code under test call it.

    Raises:
        TypeError: nothing in the result can be replaced so.
    """
    replacement = _within(REPLACEMENTS[name], result)
    if replacement is result:
        raise TypeError(f"the result has no {name}")
    return replacement


def _within(change: Callable[[Any], Any], value: Any) -> Any:
    if type(value) in (tuple, list):
        items = [_within(change, item) for item in value]
        is_same = all(one is other for one, other in zip(items, value, strict=True))
        return value if is_same else type(value)(items)
    is_floating = isinstance(value, float) or "float" in str(getattr(value, "dtype", ""))
    return change(value) if is_floating else value


def _all(value: Any) -> bool:
    return bool(value.all() if hasattr(value, "all") else value)
