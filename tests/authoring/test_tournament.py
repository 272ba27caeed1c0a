"""A tournament finds the causes of failures whose causes are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import Setting, Trial
from harness.authoring.recorder import Recorder
from harness.authoring.reports import Measured, TrialReport
from harness.authoring.tournament import Attempt, Levels, causes_of, decide

_MEASURED = frozenset({"baseline_fails", "sufficient", "necessary", "minimal", "surviving"})


def outcome(attempt: Callable[[Levels], Attempt], seed: int = 0, **causes: list[Any]) -> dict[str, Any]:
    """What a tournament of these causes measures."""
    reports: list[TrialReport] = []
    setting = Setting({"causes": list(causes), **causes}, "cpu", seed, Path(), Path())
    decide(Trial(None, setting, Path(), Recorder(_MEASURED, reports.append)), attempt)
    return {name: value for report in reports if isinstance(report, Measured) for name, value in report.values.items()}


def above(limit: float, load: Callable[[Levels], float]) -> Callable[[Levels], Attempt]:
    """An attempt that fails where the load is above the limit. What is above it is the severity."""
    return lambda levels: Attempt(load(levels) > limit, max(0.0, load(levels) - limit))


@given(st.integers(0, 999))
def test_one_cause(seed: int) -> None:
    """In any order of the attempts, the only cause survives; its fix is sufficient and necessary."""
    found = outcome(above(10, lambda levels: levels["a"]), seed, a=[5, 15, 20], b=[0, 1, 2], c=[False, True])
    assert found == {
        "baseline_fails": True, "sufficient": ["a"], "necessary": ["a"], "minimal": [["a"]], "surviving": ["a"]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "load", "sufficient", "necessary", "minimal", "surviving"),
    [
        pytest.param(
            12, lambda a, b: a + b, ["a", "b"], [], [["a"], ["b"]], ["a", "b"], id="two that the failure takes together"
        ),
        pytest.param(
            5, lambda a, b: max(a, b), [], ["a", "b"], [["a", "b"]], ["a", "b"], id="two that each make the failure"
        ),
        pytest.param(10, lambda a, b: 10 * (a + b), [], [], [], [], id="neither fix helps"),
        pytest.param(5, lambda a, b: 10 if a > 2 else 0, ["a"], ["a"], [["a"]], ["a"], id="any dose from a level on"),
        pytest.param(
            5, lambda a, b: (0, 0, 12, 8)[a // 3], ["a"], ["a"], [["a"]], [], id="more of it makes the failure less"
        ),
    ],
)
def test_two_rivals(
    limit: float,
    load: Callable[[int, int], float],
    sufficient: list[str],
    necessary: list[str],
    minimal: list[list[str]],
    surviving: list[str],
) -> None:
    """Two rivals with levels 2, 6 and 9, of which 2 is the fix."""
    found = outcome(above(limit, lambda levels: load(levels["a"], levels["b"])), a=[2, 6, 9], b=[2, 6, 9])
    assert found == {
        "baseline_fails": True, "sufficient": sufficient, "necessary": necessary, "minimal": minimal,
        "surviving": surviving,
    }  # fmt: skip


def test_a_failure_that_is_not_reproduced() -> None:
    """The failure is neither there if it never comes, nor if it is gone at the end."""
    attempts = iter([True] * 4 + [False])
    assert outcome(lambda levels: Attempt(False, 0.0), a=[0, 1], b=[0, 1])["baseline_fails"] is False
    assert outcome(lambda levels: Attempt(next(attempts), 1.0), a=[0, 1], b=[0, 1])["baseline_fails"] is False
    assert outcome(lambda levels: Attempt(True, 1.0), a=[0, 1], b=[0, 1])["baseline_fails"] is True


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"causes": ["a"], "a": [0, 1]},
        {"causes": ["a", "a"], "a": [0, 1]},
        {"causes": ["a", "b"], "a": [0, 1]},
        {"causes": ["a", "b"], "a": [0, 1], "b": [3]},
        {"causes": ["a", "b"], "a": [0, 1], "b": [3, 4, 3]},
        {"causes": list("abcdefg"), **{name: [0, 1] for name in "abcdefg"}},
    ],
)
def test_what_is_no_tournament(parameters: dict[str, Any]) -> None:
    """Two to six causes, each with levels that differ."""
    with pytest.raises(ValueError, match=r"the parameter (causes|b)"):
        causes_of(parameters)


def test_a_severity_that_is_no_number() -> None:
    """A NaN would compare as not worse."""
    with pytest.raises(ValueError, match="severity"):
        outcome(lambda levels: Attempt(True, math.nan), a=[0, 1], b=[0, 1])
