"""Axes, and plots of lines and points, 360 pixels wide to fit a phone. Lines with the same unit share a figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median_low
from sys import float_info
from typing import Final

from markupsafe import Markup, escape

from harness.report.escaping import printable
from harness.report.messages import number_text

__all__ = ["Axis", "Drawing", "Figure", "Form", "Line", "draw", "drawn", "summary"]

_WIDTH = 360
_LEFT, _RIGHT, _TOP = 50, 350, 10
_BELOW = 34
"""The height of the ticks and the label below the plot."""
_MOST_POINTS, _MOST_CASES = 120, 480
"""Points of a line, and independent ones. Of more, the lowest and the highest of each stretch are drawn."""
_FEW_POINTS = 24
"""The points of a line of at most this many are marked."""
_LARGEST = 1e150
"""Larger values are marked at the top, like those that are not finite."""
_BROKEN = "\N{MULTIPLICATION SIGN}"
_SQUEEZED: Final = 30
"""If the maximum is this many times the median, a linear axis would squeeze half of the values into one place."""
_NOISE: Final = 1e-6
"""Relative differences below this are rounding errors of time stamps. They are drawn as a flat line."""
_ROOM: Final = 0.06
"""Room at each end of an axis, as a share of its range."""
_WIDEST: Final = 1e300
"""A range beyond this gets no room, which could overflow."""

_Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """A range of numbers, drawn between two coordinates."""

    low: float
    """The number at `start`; on a logarithmic axis its power of ten."""
    high: float
    start: float
    end: float
    logarithmic: bool = False
    """Whether equal distances are equal ratios. Zero then lies at `start`."""
    whole: bool = False
    """Whether only whole numbers get ticks."""

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """Return an axis for these finite values, logarithmic if a linear one would squeeze half of them."""
        values = values or (0.0,)
        positive = [value for value in values if value > 0]
        if min(values) >= 0 and positive and max(positive) / median_low(positive) > _SQUEEZED:
            return replace(cls.powers(values, start, end), whole=_are_whole(values))
        return cls(*_range(min(values), max(values)), start, end, False, _are_whole(values))

    @classmethod
    def exactly(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """Return a linear axis from the least to the largest value. A single value lies in the middle."""
        low, high = min(values, default=0.0), max(values, default=0.0)
        low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
        return cls(low, high, start, end, False, _are_whole(values))

    @classmethod
    def powers(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """Return a logarithmic axis for the positive ones of these values. Zero has some room of its own."""
        logarithms = [math.log10(value) for value in values if value > 0] or [0.0]
        low, high = min(logarithms), max(logarithms)
        room = _ROOM * max(high - low, 1.0)
        below = 3 * room if len(logarithms) < len(values) else room
        return cls(low - below, high + room, start, end, True)

    def place(self, value: float) -> float:
        """Return the coordinate of a number; of one outside the range, the nearer end."""
        if self.logarithmic:
            value = math.log10(value) if value > 0 else self.low
        half = self.high / 2 - self.low / 2  # halves, because the range may overflow
        share = (value / 2 - self.low / 2) / half if half else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, count: int) -> Iterator[float]:
        """Yield about `count` round numbers within the range."""
        yield from self._powers(count) if self.logarithmic else self._multiples(count)

    def _multiples(self, count: int) -> Iterator[float]:
        rough = (self.high - self.low) / count
        if not (math.isfinite(rough) and rough > 0):
            return
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
        step = max(step, 1.0) if self.whole else step
        for index in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1):
            yield index * step

    def _powers(self, count: int) -> Iterator[float]:
        # The room at the ends can reach beyond the numbers that a float can have.
        first = max(math.floor(self.low), float_info.min_10_exp)
        last = min(math.floor(self.high), float_info.max_10_exp - 1)
        every = math.ceil((last - first + 1) / count)
        factors = (1, 2, 5) if self.high - self.low < 2.3 else (1,)
        for power in range(first, last + 1):
            for factor in factors if power % every == 0 else ():
                if self.low <= power + math.log10(factor) <= self.high:
                    yield float(f"{factor}e{power}")


class Form(StrEnum):
    """How the values of a series belong together."""

    LINE = "line"
    """The values follow one another."""
    POINTS = "points"
    """The values are independent cases."""
    BOUND = "bound"
    """The values are a bound. A constant bound is drawn across the plot."""


@dataclass(frozen=True)
class Line:
    """One series. None is a gap. A value that is not finite is marked at the top."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    form: Form = Form.LINE

    def finite(self) -> list[_Point]:
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
    height: int = 190
    powers: bool = False
    """Whether equal distances on both axes are equal ratios, whatever the values."""

    @property
    def scale(self) -> Axis:
        """The vertical axis."""
        axis = Axis.powers if self.powers else Axis.of
        return axis([y / self.divisor for line in self.lines for _, y in line.finite()], self.height - _BELOW, _TOP)


Drawing = tuple[Figure, Markup, list[str]]
"""A figure, its drawing, and a text for each of its lines."""


def drawn(figures: Iterable[Figure]) -> list[Drawing]:
    """Return each figure as the templates show it."""
    return [(figure, draw(figure), [summary(figure, line) for line in figure.lines]) for figure in figures]


def summary(figure: Figure, line: Line) -> str:
    """Return a line in words, for screen readers and for readers who want numbers."""
    points = line.finite()
    if not points:
        return f"no finite value in {len(line.y)}"
    ys = [y / figure.divisor for _, y in points]
    first, last, low, high = (number_text.value(float(f"{y:.4g}")) for y in (ys[0], ys[-1], min(ys), max(ys)))
    if low == high or line.form is Form.BOUND:
        text = (
            " to ".join(dict.fromkeys((low, high)))
            if line.form is Form.BOUND or len(ys) == 1
            else f"{first} throughout"
        )
    elif line.form is Form.LINE:
        text = f"{first} at first, {last} at last; lowest {low}, highest {high}"
    else:
        text = f"lowest {low}, highest {high}"
    broken = len(line.broken())
    return f"{text}; {broken} of {len(line.y)} not finite" if broken else text


def draw(figure: Figure) -> Markup:
    """Return the plot as SVG. The caption of its figure has the same facts in words."""
    data = [line for line in figure.lines if line.form is not Form.BOUND]
    across = (Axis.powers if figure.powers else Axis.exactly)([x for line in data for x in line.x], _LEFT, _RIGHT)
    up, bottom = figure.scale, figure.height - _BELOW
    parts, grid, axis = [], "", f"M{_LEFT} {bottom}H{_RIGHT}"
    has_zero = up.logarithmic and any(y == 0 for line in figure.lines for _, y in line.finite())
    for tick in [*up.ticks(4), *([0.0] if has_zero else [])]:
        y = up.place(tick)
        grid += f"M{_LEFT} {_at(y)}H{_RIGHT}"
        parts.append(_text(_short(tick), _LEFT - 6, y + 3.5, "tick end"))
    for tick in across.ticks(5):
        x = across.place(tick)
        axis += f"M{_at(x)} {bottom}v4"
        parts.append(_text(_short(tick), x, bottom + 15, "tick middle"))
    parts += [_path(grid, "grid"), _path(axis, "axis")]
    parts.append(_text(figure.x_label, (_LEFT + _RIGHT) / 2, figure.height - 4, "tick middle"))
    for index, line in enumerate(figure.lines):
        most = _MOST_CASES if line.form is Form.POINTS else _MOST_POINTS
        for stretch in _stretches(line):
            places = [(across.place(x), up.place(y / figure.divisor)) for x, y in _fewer(stretch, most)]
            parts += _strokes(places, line.form, index)
        broken = line.broken()
        parts += [
            _text(_BROKEN, across.place(x), _TOP + 4, "broken middle")
            for x in broken[:: math.ceil(len(broken) / _MOST_POINTS) or 1]
        ]
    unit = f" in {figure.unit}" if figure.unit else ""
    scale = ", on a logarithmic scale" if up.logarithmic else ""
    about = escape(printable(f"{figure.title}{unit}, by {figure.x_label}{scale}; in words below"))
    frame = f'<svg viewBox="0 0 {_WIDTH} {figure.height}" class="plot" role="img" aria-label="{about}">'
    return Markup(f"{frame}{''.join(parts)}</svg>")  # noqa: S704 (all texts in it are escaped)


def _text(content: str, x: float, y: float, style: str) -> str:
    return f'<text x="{_at(x)}" y="{_at(y)}" class="{style}">{escape(printable(content))}</text>'


def _path(path: str, style: str) -> str:
    return f'<path d="{path}" class="{style}"/>'


def _short(tick: float) -> str:
    """Return a tick's number in at most seven letters."""
    if tick == 0 or 1e-4 <= abs(tick) < 1e6:
        return f"{tick:.6g}"
    return f"{tick:.3g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _strokes(places: Sequence[_Point], form: Form, index: int) -> Iterator[str]:
    """Yield the path through the places, and the marks on them."""
    if form is Form.BOUND:
        flat = len({_at(y) for _, y in places}) == 1
        ends = [(_LEFT, places[0][1]), (_RIGHT, places[0][1])]
        yield _path(_through(ends if flat else places), "limit")
        return
    if form is Form.LINE and len(places) > 1:
        yield _path(_through(places), f"line s{index % 4}")
    if form is Form.POINTS or len(places) <= _FEW_POINTS:
        dots = dict.fromkeys(f"M{_at(x)} {_at(y)}h0" for x, y in places)
        yield _path("".join(dots), f"dots s{index % 4}")


def _through(places: Sequence[_Point]) -> str:
    return "M" + "L".join(f"{_at(x)} {_at(y)}" for x, y in places)


def _stretches(line: Line) -> Iterator[list[_Point]]:
    """Yield the stretches of points between gaps."""
    stretch: list[_Point] = []
    for x, y in zip(line.x, line.y, strict=True):
        if y is not None and _is_drawable(y):
            stretch.append((x, y))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _fewer(points: Sequence[_Point], most: int) -> Sequence[_Point]:
    """Return at most `most` points: the first, the last, and all peaks."""
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / (most // 2 - 1))
    kept = [points[0]]
    for start in range(1, len(points) - 1, size):
        stretch = points[start : min(start + size, len(points) - 1)]
        extremes = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        kept += sorted(extremes)
    return [*kept, points[-1]]


def _is_drawable(y: float) -> bool:
    return abs(y) < _LARGEST


def _at(value: float) -> str:
    """Return a coordinate with at most one decimal. Smaller differences are invisible."""
    return f"{value:.1f}".removesuffix(".0")


def _are_whole(values: Sequence[float]) -> bool:
    return all(float(value).is_integer() for value in values)


def _range(low: float, high: float) -> tuple[float, float]:
    """Return the range of a linear axis. It begins at zero if that uses less than half of it."""
    if high - low > _WIDEST:
        return low, high
    if high - low <= _NOISE * max(abs(low), abs(high)):
        return (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
    if 0 < low < (high - low):
        low = 0.0
    if 0 > high > (low - high):
        high = 0.0
    margin = (high - low) * _ROOM
    return (low if low == 0 else low - margin), (high if high == 0 else high + margin)
