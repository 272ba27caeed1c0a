"""The share of runs of the same code that FAIL."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.vocabulary import Verdict
from harness.evidence.repeats import repeats, wilson
from tests.evidence.entries import CPU, entry


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [(0, 0, 0.0, 1.0), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (1, 20, 0.0089, 0.2361), (50, 100, 0.4038, 0.5962)],
)
def test_the_interval_of_a_share(count: int, total: int, low: float, high: float) -> None:
    """The values are those of Newcombe (1998) and of R's prop.test without correction."""
    assert wilson(count, total) == pytest.approx((low, high), abs=1e-4)


def test_the_interval_to_the_last_digit() -> None:
    """The interval has both solutions of Wilson's formula. At these shares, the counted share is a quantile away."""
    for count, total in ((1, 20), (3, 7), (50, 100)):
        for share in wilson(count, total):
            deviation = 1.959963984540054 * math.sqrt(share * (1 - share) / total)
            assert abs(count / total - share) == pytest.approx(deviation, rel=1e-12)


def test_runs_of_the_same_code_that_passed_and_failed_are_flaky() -> None:
    """One PASS and one FAIL are enough."""
    verdicts = {name: Verdict[name] for name in ("PASS", "FAIL", "VOID")}
    for names, is_flaky in (
        ("PASS FAIL", True),
        ("PASS PASS FAIL", True),
        ("PASS FAIL FAIL", True),
        ("PASS PASS", False),
        ("FAIL FAIL", False),
        ("VOID", False),
    ):
        runs = [entry(second, verdict=verdicts[name]) for second, name in enumerate(names.split())]
        assert [one.is_flaky for one in repeats(runs)] == [is_flaky]


@given(st.integers(1, 10**9), st.data())
def test_the_interval_holds_the_share(total: int, data: st.DataObject) -> None:
    """The interval lies within 0 and 1, and is symmetric in passes and failures."""
    count = data.draw(st.integers(0, total))
    low, high = wilson(count, total)
    assert 0 <= low <= count / total <= high <= 1
    assert wilson(total - count, total) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_only_runs_of_the_same_code_on_the_same_class_of_device_are_repeats() -> None:
    """A change of contract, source, device, profile or parameter makes other code.

    Runs without a trial do not count.
    """
    same = [entry(second, verdict=Verdict.FAIL if second == 2 else Verdict.PASS) for second in range(4)]
    void = entry(4, verdict=Verdict.VOID)
    others = [
        entry(10, contract_digest="f" * 64, verdict=Verdict.FAIL),
        entry(11, sources={"falsifiers/demo/sorting.py": "e" * 64}),
        entry(12, device=CPU),
        entry(13, profile="reduced"),
        entry(14, overrides={"steps": 4}),
        entry(15, trial_seconds=0.0, verdict=Verdict.NOT_MEASURED),
    ]
    found = repeats([*others, *same, void])
    assert [(one.passed, one.failed, one.undecided) for one in found] == [
        (1, 0, 0), (1, 0, 0), (1, 0, 0), (1, 0, 0), (0, 1, 0), (3, 1, 1)
    ]  # fmt: skip
    assert [one.is_flaky for one in found] == [False] * 5 + [True]
    assert (found[-1].first, found[-1].last) == (same[0].when, void.when)
    assert found[-1].interval == wilson(1, 4)
