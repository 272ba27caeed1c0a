"""A duration on the command line: 90s, 20m, 1h."""

from __future__ import annotations

import re
from typing import final

import click

__all__ = ["Duration"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@final
class Duration(click.ParamType):  # type: ignore[type-arg]  # click is generic only for type checkers
    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", str(value))
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is not a duration such as 90s, 20m or 1h", param, ctx)
        return float(match[1]) * _UNITS[match[2]]
