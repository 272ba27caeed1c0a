"""Formats numbers, units and durations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.base.shortening import cut
from harness.base.strictjson import JsonObject

__all__ = ["binary", "counted", "duration", "rough", "value"]


def value(measured: Any, unit: str = "") -> str:
    """Format a measured value: six significant digits, binary units for bytes, long strings shortened.

    A string that looks like a number, such as "0.5", gets quotes, because clauses treat it as a string.
    """
    if measured is None:
        return "-"
    if isinstance(measured, bool):
        return "true" if measured else "false"
    if isinstance(measured, (int, float)):
        if unit == "B":
            return binary(measured)
        # An integer stored as a float, such as a number of bytes, keeps its digits.
        counted = isinstance(measured, int) or (measured.is_integer() and abs(measured) >= 1e6)
        text = f"{int(measured):,}" if counted and abs(measured) < 1e15 else f"{measured:.6g}"
        return f"{text} {unit}" if unit else text
    if isinstance(measured, Mapping):
        size = _size(measured)
        if size:
            return size
        return ", ".join(f"{name} {value(item)}" for name, item in measured.items()) or "nothing"
    if isinstance(measured, (list, tuple)):
        items = ", ".join(value(item) for item in measured[:3])
        return f"[{items}{', …' if len(measured) > 3 else ''}] ({len(measured)})"
    text = str(measured)
    if _reads_as_another(text):
        return f'"{text}"'
    return cut(text, 60)


def _size(measured: JsonObject) -> str:
    """Return the text for the summary of a long value (`harness.contract.clauses.brief`); empty for other values."""
    match measured:
        case {"beginning": str(beginning), "length": int(), **others} if not others:
            return f"{beginning[:57]}…"
        case {"items": int(number), **others} if not others:
            return counted(number, "item")
        case {"entries": int(number), **others} if not others:
            return counted(number, "entry", "entries")
    return ""


def _reads_as_another(text: str) -> bool:
    if text in ("", "-", "true", "false"):
        return True
    try:
        float(text[:60])
    except ValueError:
        return False
    return len(text) <= 60


def counted(number: int, thing: str, things: str = "") -> str:
    """Return such as "1 bundle" or "2 bundles". The plural is `things`, by default `thing` with an s."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def binary(count: float) -> str:
    """Return bytes in the largest binary unit in which the number is at least 1."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def rough(seconds: float) -> str:
    """Return a duration in whole seconds, such as 7 s or 3 min 20 s, for live displays."""
    return f"{seconds:.0f} s" if seconds < 60 else duration(seconds)


def duration(seconds: float) -> str:
    """Return a duration, such as 0.41 s, 12.3 s or 3 min 20 s."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
