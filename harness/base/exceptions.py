"""How an exception is worded in a message."""

from __future__ import annotations

__all__ = ["described"]


def described(error: BaseException) -> str:
    """The type and text of an exception; only the type if it has no text. A `str` that raises is named."""
    try:
        text = str(error)
    except Exception as another:
        return f"{type(error).__name__}, whose text raises {type(another).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
