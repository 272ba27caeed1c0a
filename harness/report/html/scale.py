"""A clause as a line: where the bound is, what lies on the allowed side of it, and where the value fell."""

from __future__ import annotations

import math
from collections.abc import Callable

from markupsafe import Markup

from harness.report.html.comparisons import Comparison
from harness.report.html.svg import element, number

__all__ = ["draw"]

_WIDTH, _HEIGHT, _MIDDLE = 160.0, 18.0, 9.0
_LEFT, _RIGHT = 6.0, 154.0
_DECADES = 30
"""Beyond this ratio of value and bound the line is logarithmic: on a plain one they would be one point."""


def draw(comparison: Comparison) -> Markup:
    """The line. It repeats what stands beside it as text, and is hidden from screen readers."""
    place = _place(comparison.value, comparison.bound)
    bound, value = place(comparison.bound), place(comparison.value)
    allowed = {"<": (_LEFT, bound), ">": (bound, _RIGHT), "=": (bound - 3, bound + 3)}[comparison.operator[0]]
    return element(
        "svg",
        _line(f"M{_LEFT:g} {_MIDDLE:g}H{_RIGHT:g}", "track"),
        _line(f"M{number(allowed[0])} {_MIDDLE:g}H{number(max(allowed[1], allowed[0] + 1))}", "zone"),
        _line(f"M{number(bound)} 1V{_HEIGHT - 1:g}", "bound"),
        _mark(value, comparison.holds),
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
        class_="scale",
        aria_hidden="true",
    )


def _line(path: str, style: str) -> Markup:
    return element("path", d=path, class_=style)


def _mark(x: float, holds: bool) -> Markup:
    """A dot where the comparison holds, a cross where not: nobody has to tell green from red."""
    if holds:
        return element("circle", cx=x, cy=_MIDDLE, r=4.5, class_="dot")
    left, right, top, bottom = number(x - 4), number(x + 4), number(_MIDDLE - 4), number(_MIDDLE + 4)
    return _line(f"M{left} {top}L{right} {bottom}M{right} {top}L{left} {bottom}", "cross")


def _place(value: float, bound: float) -> Callable[[float], float]:
    """From a number to its place on the line: from zero where both are on one side of it, so that lengths compare."""
    low, high = sorted((value, bound))
    if low > 0 and high / low > _DECADES:
        start, end = math.log(low) - 1, math.log(high) + 1
        return lambda one: _between((math.log(one) - start) / (end - start))
    start, end = min(low, 0.0), max(high, 0.0)
    room = (end - start) * 0.2 or 1.0
    if not math.isfinite(room):
        return lambda one: _between(0.25 if one == low else 0.75)
    start, end = start - (room if start < 0 else 0), end + (room if end > 0 or start == 0 else 0)
    return lambda one: _between((one - start) / (end - start))


def _between(share: float) -> float:
    return _LEFT + share * (_RIGHT - _LEFT)
