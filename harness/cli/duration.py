"""A duration on the command line: 90s, 20m, 1h."""

from __future__ import annotations

import re

import click

__all__ = ["duration"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """Return the seconds of a duration, as the type of an option."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text)
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{text!r} is not a duration such as 90s, 20m or 1h")
    return float(match[1]) * _UNITS[match[2]]
