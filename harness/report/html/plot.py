"""Line plots, 360 pixels wide to fit a phone. Lines with the same unit share a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.report import number_text
from harness.report.html.svg import element, number, text

__all__ = ["Figure", "Line", "draw", "summary"]

_WIDTH, _HEIGHT = 360.0, 200.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 350.0, 10.0, 166.0
_MOST_POINTS = 120
"""Points of a line. Of more points, the lowest and the highest of each stretch are drawn."""

_LARGEST = 1e150
_NOISE = 1e-6
"""Relative differences below this are rounding errors of time stamps. They are drawn as a flat line."""
_BROKEN = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Line:
    """One series. None is a gap. A value that is not finite is marked at the top."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]

    def finite(self) -> list[tuple[float, float]]:
        """Return the points that can be drawn."""
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if y is not None and _is_drawable(y)]

    def broken(self) -> list[float]:
        """Return the x of each value that is not finite or too large to be drawn."""
        return [x for x, y in zip(self.x, self.y, strict=True) if y is not None and not _is_drawable(y)]


@dataclass(frozen=True)
class Figure:
    """Lines that share their axes."""

    title: str
    unit: str
    x_label: str
    lines: tuple[Line, ...]
    divisor: float = 1.0
    """The divisor that converts values to the unit, such as bytes to GiB."""


def summary(figure: Figure, line: Line) -> str:
    """Return a line in words, for screen readers and for readers who want numbers."""
    points = line.finite()
    if not points:
        return f"no finite value in {len(line.y)}"
    ys = [y for _, y in points]

    def shown(y: float) -> str:
        return number_text.value(float(f"{y / figure.divisor:.4g}"))

    broken = len(line.broken())
    told = f"{shown(ys[0])} at first, {shown(ys[-1])} at last; lowest {shown(min(ys))}, highest {shown(max(ys))}"
    if max(ys) - min(ys) <= _NOISE * max(map(abs, ys)):
        told = f"{shown(ys[0])} throughout"
    return f"{told}; {broken} of {len(line.y)} not finite" if broken else told


def draw(figure: Figure) -> Markup:
    """Return the plot as SVG. The caption of its figure has the same facts in words."""
    points = [point for line in figure.lines for point in line.finite()]
    broken = [x for line in figure.lines for x in line.broken()]
    xs, ys = [x for x, _ in points] or broken or [0.0], [y / figure.divisor for _, y in points] or [0.0]
    low, high = _range(min(ys), max(ys))
    first, last = min([*xs, *broken]), max([*xs, *broken])
    last = last if last > first else first + 1

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - first) / (last - first) * (_RIGHT - _LEFT)
        return across, _BOTTOM - (y - low) / (high - low) * (_BOTTOM - _TOP)

    parts: list[Markup] = []
    grid, axis = [], [f"M{_LEFT:g} {_BOTTOM:g}H{_RIGHT:g}"]
    for tick in _ticks(low, high, 4):
        y = place(first, tick)[1]
        grid.append(f"M{_LEFT:g} {number(y)}H{_RIGHT:g}")
        parts.append(text(f"{tick:.6g}", _LEFT - 6, y + 3.5, class_="tick end"))
    for tick in _ticks(first, last, 5):
        x = place(tick, low)[0]
        axis.append(f"M{number(x)} {_BOTTOM:g}v4")
        parts.append(text(f"{tick:.6g}", x, _BOTTOM + 15, class_="tick middle"))
    parts.append(element("path", d="".join(grid), class_="grid"))
    parts.append(element("path", d="".join(axis), class_="axis"))
    parts.append(text(figure.x_label, (_LEFT + _RIGHT) / 2, _HEIGHT - 4, class_="tick middle"))
    for index, line in enumerate(figure.lines):
        for stretch in _stretches(line):
            places = [place(x, y / figure.divisor) for x, y in _fewer(stretch)]
            parts.append(_stroke(places, f"line s{index % 4}"))
        parts += [
            text(_BROKEN, place(x, high)[0], _TOP + 4, class_="broken middle") for x in _fewer_marks(line.broken())
        ]
    return element(
        "svg", *parts, viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}", class_="plot", role="img",
        aria_label=f"{figure.title}{f' in {figure.unit}' if figure.unit else ''}, by {figure.x_label}; in words below",
    )  # fmt: skip


def _stroke(places: Sequence[tuple[float, float]], style: str) -> Markup:
    if len(places) == 1:
        return element("circle", cx=places[0][0], cy=places[0][1], r=2.5, class_=style)
    path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in places)
    return element("path", d=path, class_=style)


def _stretches(line: Line) -> Iterator[list[tuple[float, float]]]:
    """Yield the stretches of points between gaps."""
    stretch: list[tuple[float, float]] = []
    for x, y in zip(line.x, line.y, strict=True):
        if y is not None and _is_drawable(y):
            stretch.append((x, y))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _fewer(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return at most `_MOST_POINTS` points: the first, the last, and all peaks."""
    if len(points) <= _MOST_POINTS:
        return points
    size = math.ceil(len(points) / (_MOST_POINTS // 2 - 1))
    kept = [points[0]]
    for start in range(1, len(points) - 1, size):
        stretch = points[start : min(start + size, len(points) - 1)]
        extremes = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        kept += sorted(extremes)
    return [*kept, points[-1]]


def _fewer_marks(xs: Sequence[float]) -> Sequence[float]:
    return xs[:: math.ceil(len(xs) / _MOST_POINTS) or 1]


def _is_drawable(y: float) -> bool:
    return abs(y) < _LARGEST


def _range(low: float, high: float) -> tuple[float, float]:
    """Return the range of the axis. It begins at zero if that uses less than half of the height."""
    if high - low <= _NOISE * max(abs(low), abs(high)):
        return (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
    if 0 < low < (high - low):
        low = 0.0
    if 0 > high > (low - high):
        high = 0.0
    room = (high - low) * 0.06
    return (low if low == 0 else low - room), (high if high == 0 else high + room)


def _ticks(low: float, high: float, count: int) -> Iterator[float]:
    """Yield about `count` round numbers within a range."""
    rough = (high - low) / count
    if not (math.isfinite(rough) and rough > 0):
        return
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        yield index * step
