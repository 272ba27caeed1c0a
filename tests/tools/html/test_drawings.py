"""Plots: well-formed and inside their frame, for any numbers."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.tools.html import plot
from harness.tools.html.plot import Axis, Figure, Form, Line

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SAMPLES = st.lists(st.none() | st.floats(), min_size=1, max_size=400)


def coordinates(text: str) -> list[float]:
    """Every number in a drawing's attributes that sets a position."""
    root = ET.fromstring(text)
    found = []
    for element in root.iter():
        for name in ("x", "y", "cx", "cy", "d"):
            found += [float(number) for number in re.findall(r"-?\d+\.?\d*", element.get(name, ""))]
    return found


@given(values=SAMPLES)
def test_a_plot_stays_in_its_frame(values: list[float | None]) -> None:
    """The plot can have gaps, NaN, infinities and the largest doubles. Its text counts them."""
    figure = Figure("Loss", "nats", "step", (Line("loss", range(len(values)), values),))
    drawing = plot.draw(figure)
    assert all(-5 <= number <= 365 for number in coordinates(drawing))
    broken = sum(value is not None and not abs(value) < 1e150 for value in values)
    assert (f"{broken} of {len(values)} not finite" in plot.summary(figure, figure.lines[0])) == (
        0 < broken < len(values) - values.count(None)
    )


def test_a_plot_keeps_every_peak_of_a_long_series() -> None:
    """A single sample in ten thousand is drawn, whatever the number of drawn points is."""
    values = [1.0] * 10_000
    values[4321] = 9.0
    figure = Figure("Memory", "GiB", "s", (Line("memory", range(10_000), values),))
    drawing = plot.draw(figure)
    assert len(drawing) < 6_000
    ys = [float(pair.split()[1]) for path in re.findall(r'd="M([^"]*L[^"]*)"', drawing) for pair in path.split("L")]
    assert max(ys) - min(ys) > 100


def test_gaps_are_gaps_and_what_is_not_finite_is_marked() -> None:
    """The plot has two stretches and a mark."""
    values = [3.0, 2.0, None, 2.0, math.nan, 1.0, 0.5]
    figure = Figure("Loss", "", "step", (Line("loss", range(7), values),))
    drawing = plot.draw(figure)
    assert (drawing.count('class="line s0"'), drawing.count('class="dots s0"')) == (2, 3)
    assert drawing.count('class="broken middle"') == 1
    assert plot.summary(figure, figure.lines[0]) == "3 at first, 0.5 at last; lowest 0.5, highest 3; 1 of 7 not finite"


@example(values=[1e285, 1e-269], whole=False)
@given(values=st.lists(NUMBERS, min_size=1), whole=st.booleans())
def test_an_axis_keeps_the_order_and_its_ticks_are_round(values: list[float], whole: bool) -> None:
    """Axes are linear or logarithmic. If all values are whole numbers, so are the ticks."""
    values = [float(int(value)) for value in values] if whole else values
    axis = Axis.of(values, 0.0, 100.0)
    places = [axis.place(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(0 <= place <= 100 for place in places)
    ticks = list(axis.ticks(4))
    assert ticks == sorted(ticks)
    assert len(ticks) <= 12
    assert all(f"{abs(tick):e}".rstrip("0")[:1] in "0123456789" for tick in ticks)
    if axis.whole and not axis.logarithmic:
        assert all(tick.is_integer() for tick in ticks)


@pytest.mark.parametrize(
    ("values", "logarithmic", "ticks"),
    [
        ([0.0, 5.3], False, [0, 2, 4]),
        ([1.0, 2.0, 3.0], False, [0, 1, 2, 3]),
        ([1e-9, 3e-9, 1e-4], True, [1e-8, 1e-6, 1e-4]),
        ([2.0, 3.0, 100.0], True, [2, 5, 10, 20, 50, 100]),
        ([0.0, 1e-9, 1e-4], True, [1e-8, 1e-6, 1e-4]),
        ([-1.0, 1e-9, 1.0], False, [-1, 0, 1]),
    ],
)
def test_ticks(values: list[float], logarithmic: bool, ticks: list[float]) -> None:
    """An axis is logarithmic if a linear one would squeeze half of the values into one place."""
    axis = Axis.of(values, 0.0, 100.0)
    assert axis.logarithmic is logarithmic
    assert list(axis.ticks(4)) == pytest.approx(ticks)


def test_steps_have_whole_numbers() -> None:
    """Three steps have no tick between them, and a single step is in the middle."""
    assert list(Axis.exactly([1.0, 2.0, 3.0], 0.0, 100.0).ticks(5)) == [1, 2, 3]
    alone = Axis.exactly([7.0], 0.0, 100.0)
    assert (list(alone.ticks(5)), alone.place(7.0)) == ([7], 50)


def test_independent_cases_are_points_and_a_bound_reaches_across() -> None:
    """No line joins independent cases."""
    cases = Line("errors", range(1, 5), [1.0, 2.0, 0.5, 1.5], Form.POINTS)
    drawing = plot.draw(Figure("Errors", "", "case", (cases, Line("bound ≤", [0.0], [3.0], Form.BOUND))))
    assert 'class="line' not in drawing
    [dots] = re.findall(r'd="([^"]*)" class="dots s0"', drawing)
    assert dots.count("M") == 4
    [bound] = re.findall(r'd="([^"]*)" class="limit"', drawing)
    assert [float(pair.split()[0]) for pair in bound[1:].split("L")] == [50, 350]
