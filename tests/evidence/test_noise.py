"""Noise: which changes count as a shift, and how often a healthy run counts as one."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.evidence.measurement_history import FEWEST, Noise, Shift

finite = st.floats(-1e9, 1e9)


@pytest.mark.parametrize("count", [5, 6, 8, 11, 20, 40, 150])
def test_one_healthy_run_in_a_hundred_is_called_a_shift(count: int) -> None:
    """With any number of earlier runs, one healthy run in a hundred is a shift:

    20,000 runs of normal noise each. The table is rounded so that fewer are.
    """
    rng = random.Random(count)
    runs = 20_000 if count <= 20 else 5_000
    called = 0
    for _ in range(runs):
        noise = Noise.of([rng.gauss(3.0, 0.1) for _ in range(count)])
        called += noise.shift(rng.gauss(3.0, 0.1)) is not Shift.WITHIN
    expected = 0.01
    tolerance = NormalDist().inv_cdf(0.9999) * math.sqrt(expected * (1 - expected) / runs)
    assert called / runs <= expected + tolerance
    assert called / runs >= expected / 2 - tolerance


_STEPS = {
    5: 14.34, 6: 8.02, 7: 7.73, 8: 5.92, 9: 5.78, 10: 4.95, 11: 4.95, 12: 4.43, 14: 4.43, 15: 4.06, 19: 4.06, 20: 3.51,
    29: 3.51, 30: 3.17, 49: 3.17, 50: 2.93, 99: 2.93, 100: 2.74, 1001: 2.74,
}  # fmt: skip


@pytest.mark.parametrize(("count", "factor"), _STEPS.items())
def test_how_many_scatters_are_noise(count: int, factor: float) -> None:
    """These are the quantiles of the test above, at both ends of each step of the table."""
    noise = Noise.of([3.0, 5.0] * (count // 2) + [4.0] * (count % 2))
    assert (noise.count, noise.middle, noise.scatter) == (count, 4.0, 1.4826)
    assert noise.high - 4.0 == pytest.approx(1.4826 * factor, rel=1e-9)
    assert 4.0 - noise.low == pytest.approx(1.4826 * factor, rel=1e-9)


def test_the_words_are_those_of_the_reports() -> None:
    """Below five runs there is no answer."""
    assert [*Shift] == ["within", "above", "below", "not finite", "too few"]
    assert FEWEST == 5


def test_what_was_rounded_when_it_was_printed_did_not_move() -> None:
    """A change of at most 1e-12 of the largest value is rounding, not a shift."""
    noise = Noise.of([1.0, 1.0, 1.0, 1.0, -100.0])
    assert [noise.shift(value) for value in (1.0 + 0.9e-10, 1.0 + 1.1e-10)] == [Shift.WITHIN, Shift.ABOVE]
    assert [noise.shift(value) for value in (-100.0 - 0.9e-10, -100.0 - 1.1e-10)] == [Shift.WITHIN, Shift.BELOW]


def test_of_too_few_the_middle_is_known_and_no_bound() -> None:
    """With too few values, the median is known and the bounds are not. Without values there is no median either."""
    few = Noise.of([1.0, 2.0, 4.0])
    assert (few.count, few.middle, few.scatter) == (3, 2.0, pytest.approx(1.4826))
    assert math.isnan(few.low)
    assert math.isnan(few.high)
    none = Noise.of([math.nan])
    assert none.count == 0
    assert all(map(math.isnan, (none.middle, none.scatter, none.low, none.high)))


def test_a_defect_of_ten_scatters_is_seen_after_ten_runs() -> None:
    """The shift may be upwards or downwards."""
    rng = random.Random(1)
    seen = 0
    for _ in range(1_000):
        noise = Noise.of([rng.gauss(0, 1) for _ in range(10)])
        seen += (noise.shift(10.0), noise.shift(-10.0)) == (Shift.ABOVE, Shift.BELOW)
    assert seen > 900


def test_an_outlier_among_the_earlier_runs_hides_nothing() -> None:
    """An outlier does not hide a shift. It would hide it from mean and standard deviation."""
    noise = Noise.of([1.00, 1.01, 0.99, 1.00, 1.02, 0.98, 50.0, 1.01])
    assert noise.shift(1.5) is Shift.ABOVE


@given(st.lists(finite, max_size=FEWEST - 1), finite)
def test_too_few_say_nothing(earlier: list[float], value: float) -> None:
    """With too few earlier runs, the shift is UNKNOWN."""
    assert Noise.of(earlier).shift(value) is Shift.UNKNOWN


@given(st.lists(finite, min_size=FEWEST, max_size=30))
def test_the_median_is_noise(earlier: list[float]) -> None:
    """The median itself is noise. A value far beyond all others is a shift."""
    noise = Noise.of(earlier)
    assert noise.shift(noise.middle) is Shift.WITHIN
    assert noise.shift(1e12) is Shift.ABOVE
    assert noise.shift(-1e12) is Shift.BELOW


@given(st.floats(-1e6, 1e6), st.integers(FEWEST, 20))
def test_what_never_scattered_may_not_move(value: float, count: int) -> None:
    """If earlier values were all equal, any change is a shift.

    Examples are a count of steps and a deterministic loss.
    """
    noise = Noise.of([value] * count)
    assert noise.shift(value) is Shift.WITHIN
    assert noise.shift(value + max(1e-6, abs(value) * 1e-9)) is Shift.ABOVE


def test_where_most_are_equal_all_that_was_seen_is_noise() -> None:
    """If most values are equal, the scatter is 0.

    Then every earlier value is noise, because a rare one can be healthy.
    """
    noise = Noise.of([1, 1, 1, 1, 2, 1, 1])
    assert [noise.shift(value) for value in (1, 2, 1.5, 2.1, 0.9)] == [
        Shift.WITHIN,
        Shift.WITHIN,
        Shift.WITHIN,
        Shift.ABOVE,
        Shift.BELOW,
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite(value: float) -> None:
    """A value that is not finite gets its own shift. Among the earlier values it is left out."""
    assert Noise.of([]).shift(value) is Shift.NOT_FINITE
    assert Noise.of([1.0] * 9).shift(value) is Shift.NOT_FINITE
    assert Noise.of([1.0, 2.0, value]) == Noise.of([1.0, 2.0])
