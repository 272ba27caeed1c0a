"""Converts measurements to JSON without calling methods that the subject could override.

A subclass can override `__int__`, `__float__` and `tolist`. So values are read by the functions of the base types of
Python, numpy and torch, such as `float.__float__(value)`.
"""

from __future__ import annotations

import sys
from typing import Any

from harness.authoring.unobserved import Unobserved
from harness.base import strictjson

__all__ = ["number", "plain", "whole"]


def plain(value: Any) -> Any:
    """Return a measurement as JSON, with non-finite numbers tagged.

    Accepts None, bool, int, float, str, list, tuple, dict and their subclasses; numpy scalars and arrays; and
    `torch.Tensor` itself. Keys of a dict become strings.

    Raises:
        NotObserved: the value contains an `Unobserved`.
        TypeError: the value contains another type.
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is Unobserved:
        Unobserved.reveal(value)
    if issubclass(kind, int):
        return strictjson.tag_nonfinite(int.__int__(value))
    if issubclass(kind, float):
        return strictjson.tag_nonfinite(float.__float__(value))
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, dict):
        return {_key(key): plain(item) for key, item in dict.items(value)}
    if issubclass(kind, list):
        return [plain(item) for item in list.__iter__(value)]
    if issubclass(kind, tuple):
        return [plain(item) for item in tuple.__iter__(value)]
    return plain(_of_library(value))


def number(value: Any) -> Any:
    """Return a number, None or a bool as JSON.

    Raises:
        TypeError: the value is none of these.
    """
    exact = plain(value)
    if exact is None or type(exact) in (bool, int, float) or (type(exact) is dict and strictjson.is_tagged(exact)):
        return exact
    raise TypeError(f"a value of a step must be a number, not {type(value).__name__}")


def whole(value: Any) -> int:
    """Return an integer. A float with an integral value is accepted.

    Raises:
        TypeError: the value is not integral.
    """
    exact = plain(value)
    if type(exact) is int or (type(exact) is float and exact.is_integer()):
        return int(exact)
    raise TypeError(f"a step must be an integer, not {type(value).__name__}")


def _key(key: Any) -> str:
    exact = plain(key)
    if type(exact) in (str, bool, int, float):
        return str(exact)
    raise TypeError(f"a key of a measurement must be a text or a number, not {type(key).__name__}")


def _of_library(value: Any) -> Any:
    """Convert a numpy or torch value to Python numbers and lists."""
    kind = type(value)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and issubclass(kind, numpy.generic):
        item = numpy.generic.item(value)
        if type(item) is not kind:  # numpy returns a scalar without a Python type, such as longdouble, unchanged
            return item
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return numpy.ndarray.tolist(value)
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):  # a subclass can override torch's functions
        return torch.Tensor.tolist(value)
    raise TypeError(f"a measurement must be a number, text, list, map, array or tensor, not {kind.__name__}")
