"""Regular expressions that cannot run away: RE2 matches in time linear in the text, whatever the expression."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["PatternRefused", "compiled"]

_MOST_BYTES = 1 << 22
"""Memory for one expression and its matching."""


class PatternRefused(ValueError):
    """An expression that RE2 does not take; the text says why."""


def compiled(expression: str) -> Any:
    """The expression, ready to `search`; groups are named as in Python.

    Raises:
        PatternRefused: it is malformed, too large, or needs more than linear time (look-around, backreferences).
        ModuleNotFoundError: RE2 is not installed; the text says what to install.
    """
    try:
        re2 = importlib.import_module("re2")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "reading a trainer's output needs google-re2: pip install 'falsifier-harness[external]'", name="re2"
        ) from error
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_BYTES
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise PatternRefused(f"{expression!r} is no linear-time regular expression: {text}") from error
