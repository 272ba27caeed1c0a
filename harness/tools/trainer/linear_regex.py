"""Regular expressions in linear time: RE2 matches every expression in time linear in the text."""

from __future__ import annotations

import importlib
from typing import Any

from harness.base.plugins import installation

__all__ = ["PatternRefused", "compiled"]

_MOST_BYTES = 1 << 22
"""Bytes of memory for one expression and its matching."""


class PatternRefused(ValueError):
    """RE2 refuses an expression. The message says why."""


def compiled(expression: str) -> Any:
    """The compiled expression. Groups have names as in Python.

    Raises:
        PatternRefused: it is malformed, too large, or not linear (look-around, backreferences).
        ModuleNotFoundError: RE2 is not installed. The message says what to install.
    """
    try:
        re2 = importlib.import_module("re2")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"reading a trainer's output needs google-re2: {installation('external')}", name="re2"
        ) from error
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_BYTES
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        message = error.args[0] if error.args else error
        text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        raise PatternRefused(f"{expression!r} is not a linear-time regular expression: {text}") from error
