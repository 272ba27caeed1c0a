"""Paired timing with a clock that the test controls."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from harness.authoring.timing import Interval, Timing, interleave


class Clock:
    """Time passes only during work."""

    def __init__(self) -> None:
        """Start at midnight."""
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def a_timing(arms: dict[str, float], *, rounds: int = 40, scatter: float = 0.0, drift: float = 0.0) -> Timing:
    """Arms that take the given seconds. The machine has relative noise and slows down from round to round."""
    clock, chance = Clock(), random.Random(1)

    def arm(seconds: float) -> None:
        clock.now += seconds * (1 + drift * clock.now) * math.exp(chance.gauss(0, scatter))

    work = {name: (lambda seconds=seconds: arm(seconds)) for name, seconds in arms.items()}
    return interleave(work, rounds=rounds, warmup=2, seed=0, clock=clock)


def test_every_arm_is_timed_once_a_round_in_an_order_of_its_own() -> None:
    """All samples are kept, and the first arm varies."""
    timing = a_timing({"a": 1.0, "b": 2.0, "c": 3.0}, rounds=30)
    assert {name: len(samples) for name, samples in timing.seconds.items()} == {"a": 30, "b": 30, "c": 30}
    assert len(timing.orders) == 30
    assert {frozenset(order) for order in timing.orders} == {frozenset("abc")}
    assert len(set(timing.orders)) == 6
    assert timing.as_json()["orders"] == timing.orders


def test_warming_up_is_not_kept() -> None:
    """The first rounds cost ten times as much and do not count."""
    clock, calls = Clock(), []

    def arm() -> None:
        calls.append(1)
        clock.now += 10.0 if len(calls) <= 4 else 1.0

    timing = interleave({"a": arm, "b": arm}, rounds=5, warmup=2, seed=0, clock=clock)
    assert set(timing.seconds["a"] + timing.seconds["b"]) == {1.0}


def test_launched_work_counts_for_the_arm_that_launched_it() -> None:
    """The clock stops after the synchronisation of the arm, and starts after the synchronisation of the arm before."""
    clock, pending = Clock(), []

    def synchronize() -> None:
        clock.now += sum(pending)
        pending.clear()

    arms = {"light": lambda: pending.append(1.0), "heavy": lambda: pending.append(5.0)}
    timing = interleave(arms, rounds=4, warmup=0, seed=0, synchronize=synchronize, clock=clock)
    assert timing.seconds == {"light": (1.0,) * 4, "heavy": (5.0,) * 4}


def test_a_difference_is_found_through_scatter_and_drift() -> None:
    """Noise of 3 % on a machine that slows down to half neither hides a difference of 10 % nor invents one."""
    timing = a_timing({"plain": 1.0, "again": 1.0, "slow": 1.1}, rounds=60, scatter=0.03, drift=0.005)
    slower, nothing = timing.ratio("slow", "plain"), timing.ratio("again", "plain")
    assert slower.low > 1.05
    assert slower.low <= 1.1 <= slower.high
    assert nothing.low <= 1.0 <= nothing.high
    assert nothing.high < 1.05


def test_an_exact_difference_has_no_width() -> None:
    timing = a_timing({"plain": 1.0, "slow": 1.25})
    assert timing.ratio("slow", "plain") == Interval(pytest.approx(1.25), pytest.approx(1.25), pytest.approx(1.25))
    assert timing.difference("slow", "plain") == Interval(pytest.approx(0.25), pytest.approx(0.25), pytest.approx(0.25))


def test_a_neighbour_who_works_now_and_then_is_trimmed_away() -> None:
    """One round in twenty takes ten times as long; the estimate does not change."""
    samples = [1.0] * 40
    disturbed = [10.0 if number % 20 == 7 else 1.0 for number in range(40)]
    timing = Timing({"plain": tuple(samples), "disturbed": tuple(disturbed)}, (), 0)
    assert timing.ratio("disturbed", "plain").estimate == pytest.approx(1.0)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.5, 2.0), min_size=5, max_size=20), st.integers(0, 2**32))
def test_intervals_hold_their_estimate_and_repeat_from_their_seed(samples: list[float], seed: int) -> None:
    timing = Timing({"a": tuple(samples), "b": (1.0,) * len(samples)}, (), seed)
    interval = timing.ratio("a", "b")
    assert interval == timing.ratio("a", "b")
    assert interval.low <= interval.high
    assert min(samples) * 0.999 <= interval.low
    assert interval.high <= max(samples) * 1.001
    assert timing.ratio("a", "b", confidence=0.5).high <= interval.high


def test_ninety_nine_in_a_hundred_intervals_hold_the_truth() -> None:
    """In 100 comparisons of an arm with itself at 90 %, about 10 intervals may miss 1."""
    missed = 0
    for seed in range(100):
        chance = random.Random(seed)
        arms = {name: tuple(math.exp(chance.gauss(0, 0.1)) for _ in range(30)) for name in ("a", "b")}
        interval = Timing(arms, (), seed).ratio("a", "b", confidence=0.9)
        missed += not interval.low <= 1.0 <= interval.high
    assert 2 < missed < 23


@pytest.mark.parametrize(("interval", "settled"), [((0.9, 1.0), True), ((1.06, 1.2), True), ((1.0, 1.06), False)])
def test_an_interval_settles_a_limit_or_does_not(interval: tuple[float, float], settled: bool) -> None:
    """A limit is decided only if the whole interval is on one side."""
    assert Interval(sum(interval) / 2, *interval).settles(1.05) is settled


def test_nothing_to_compare_is_refused() -> None:
    """One arm, one round or an impossible confidence is refused."""
    with pytest.raises(ValueError, match=r"^1 .* 10 "):
        interleave({"a": lambda: None}, rounds=10, warmup=0, seed=0)
    with pytest.raises(ValueError, match=r"^2 .* 1 "):
        interleave({"a": lambda: None, "b": lambda: None}, rounds=1, warmup=0, seed=0)
    with pytest.raises(ValueError, match="99"):
        a_timing({"a": 1.0, "b": 1.0}).ratio("a", "b", confidence=99)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5])
def test_a_confidence_lies_between_none_and_all(confidence: float, snapshot: SnapshotAssertion) -> None:
    """No number of samples gives a confidence of 0 or 1."""
    with pytest.raises(ValueError, match=str(confidence)) as refused:
        a_timing({"a": 1.0, "b": 1.0}).difference("a", "b", confidence)
    assert str(refused.value) == snapshot


def test_two_arms_in_two_rounds_can_be_compared(snapshot: SnapshotAssertion) -> None:
    """With fewer, the error says how many there were."""
    assert a_timing({"a": 1.0, "b": 2.0}, rounds=2).ratio("b", "a").estimate == pytest.approx(2.0)
    with pytest.raises(ValueError, match=r"^1 .* 10 ") as refused:
        interleave({"a": lambda: None}, rounds=10, warmup=0, seed=0)
    assert str(refused.value) == snapshot


def test_orders_are_drawn_from_the_seed() -> None:
    """The order in which the arms are named does not matter. Warming up draws an order too, and runs each arm."""
    calls: list[str] = []
    arms = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    first = interleave(arms, rounds=9, warmup=3, seed=5)
    assert len(calls) == 3 * (9 + 3)
    assert [tuple(calls[place : place + 3]) for place in range(9, 36, 3)] == list(first.orders)
    assert interleave(dict(reversed(arms.items())), rounds=9, warmup=3, seed=5).orders == first.orders
    assert interleave(arms, rounds=9, warmup=3, seed=6).orders != first.orders
    assert interleave(arms, rounds=9, warmup=0, seed=5).orders[3:] == first.orders[:6]


def test_all_of_a_timing_is_kept() -> None:
    timing = Timing({"a": (1.0, 2.0), "b": (3.0, 4.0)}, (("a", "b"), ("b", "a")), 7)
    expected = {"seconds": {"a": (1.0, 2.0), "b": (3.0, 4.0)}, "orders": (("a", "b"), ("b", "a")), "seed": 7}
    assert timing.as_json() == expected


@pytest.mark.parametrize(
    ("interval", "settled"),
    [((1.05, 1.05), True), ((1.05, 1.06), False), ((1.0, 1.05), True), ((1.05001, 2.0), True), ((0.0, 2.0), False)],
)
def test_on_the_limit_is_within_it(interval: tuple[float, float], settled: bool) -> None:
    """An interval that begins at the limit decides nothing."""
    assert Interval(interval[0], *interval).settles(1.05) is settled


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-8, 8), min_size=2, max_size=45))
def test_the_estimate_is_the_mean_without_the_outer_tenths(samples: list[float]) -> None:
    """The number of trimmed samples is rounded down.

    Nine samples are all kept. Of ten, the smallest and the largest are left out.
    """
    cut = len(samples) // 10
    kept = sorted(samples)[cut : len(samples) - cut]
    timing = Timing({"a": tuple(samples), "b": (0.0,) * len(samples)}, (), 0)
    assert timing.difference("a", "b", 0.5).estimate == pytest.approx(sum(kept) / len(kept), abs=1e-9)


@pytest.mark.parametrize(("confidence", "deviations"), [(0.5, 0.674), (0.9, 1.645), (0.99, 2.576)])
def test_an_interval_is_as_wide_as_its_confidence(confidence: float, deviations: float) -> None:
    """For normal noise it is as wide as the normal distribution says. Trimming a tenth adds about 3 %."""
    chance = random.Random(3)
    samples = tuple(chance.gauss(0, 1) for _ in range(200))
    spread = math.sqrt(sum(sample * sample for sample in samples) / len(samples))
    interval = Timing({"a": samples, "b": (0.0,) * 200}, (), 1).difference("a", "b", confidence)
    assert interval.high - interval.low == pytest.approx(2 * 1.03 * deviations * spread / math.sqrt(200), rel=0.1)
    assert interval.low < interval.estimate < interval.high


def test_arms_of_different_length_are_not_paired() -> None:
    """A sample without a partner would be dropped silently."""
    timing = Timing({"a": (1.0, 2.0, 3.0), "b": (1.0, 2.0)}, (), 0)
    for compare in (timing.ratio, timing.difference):
        with pytest.raises(ValueError, match="shorter"):
            compare("a", "b")


def test_work_that_was_launched_before_counts_for_no_arm() -> None:
    """The first sample starts only after earlier work has ended."""
    clock, pending = Clock(), [100.0]

    def synchronize() -> None:
        clock.now += sum(pending)
        pending.clear()

    arms = {"light": lambda: pending.append(1.0), "heavy": lambda: pending.append(5.0)}
    timing = interleave(arms, rounds=2, warmup=0, seed=0, synchronize=synchronize, clock=clock)
    assert timing.seconds == {"light": (1.0,) * 2, "heavy": (5.0,) * 2}


def test_an_interval_leaves_out_as_many_resamples_above_as_below() -> None:
    """At 99 %, ten of 2000 means are left out on each side: the percentile bootstrap, drawn from the seed."""
    samples = tuple(float(number**2) for number in range(20))
    chance = random.Random(7)
    resamples = [sorted(chance.choices(samples, k=20))[2:-2] for _ in range(2000)]
    means = sorted(math.fsum(kept) / len(kept) for kept in resamples)
    interval = Timing({"a": samples, "b": (0.0,) * 20}, (), 7).difference("a", "b")
    assert (interval.low, interval.high) == (means[10], means[-11])


@pytest.mark.parametrize(("slow", "spread"), [(5, 1.0), (15, 2.0), (50, 2.0), (95, 1.0)])
def test_the_spread_shows_work_that_comes_and_goes(slow: int, spread: float) -> None:
    """A few samples take twice as long. They do not count if they are fewer than a tenth of 100."""
    samples = (1.0,) * (100 - slow) + (2.0,) * slow
    assert Timing({"a": samples, "b": samples}, (), 0).spread("a") == spread


def test_an_interval_is_widened_by_how_much_equal_arms_differ() -> None:
    """The second arm of the baseline takes 2 % longer, or less: the interval grows by 2 % on both sides."""
    timing = Timing({"a": (1.1,) * 9, "b": (1.0,) * 9, "more": (1.02,) * 9, "less": (1 / 1.02,) * 9}, (), 0)
    for again in ("more", "less"):
        wide = timing.ratio("a", "b", again=again)
        assert (wide.estimate, wide.low, wide.high) == pytest.approx((1.1, 1.1 / 1.02, 1.1 * 1.02))
    wide = timing.difference("a", "b", again="more")
    assert (wide.estimate, wide.low, wide.high) == pytest.approx((0.1, 0.08, 0.12))
    assert timing.ratio("a", "b", again="b") == timing.ratio("a", "b")


@pytest.mark.parametrize(
    ("slower", "scatter", "decides"),
    [(0.4, 0.001, True), (1.1, 0.001, True), (0.4, 0.2, True), (3.0, 0.2, True), (1.0, 0.2, False), (1.1, 0.2, False)],
)
def test_noise_turns_no_slow_arm_into_a_fast_one(slower: float, scatter: float, decides: bool) -> None:
    """On ten machines with this noise no decision is wrong, and each decides a ratio far from the limit of 1.05."""
    for seed in range(10):
        chance = random.Random(seed)
        costs = {"old": 1.0, "again": 1.0, "new": slower}
        arms = {
            name: tuple(cost * math.exp(chance.gauss(0, scatter)) for _ in range(30)) for name, cost in costs.items()
        }
        found = Timing(arms, (), seed).ratio("new", "old", again="again")
        assert found.settles(1.05) is decides
        assert not decides or (found.high <= 1.05) is (slower <= 1.05)
