"""Claims on the time of a step: an interval that contains a limit decides nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.nanochat import step_parts, step_speed
from falsifiers.nanochat.step_parts import forward_share
from harness import NotMeasured
from harness.authoring.timing import Timing
from harness.base.vocabulary import Outcome
from harness.contract.project import Project
from tests.falsifiers.in_process import judged

PROJECT = Project.find(Path(__file__).parents[3])
SPLIT, SPEEDUP = (PROJECT.contract(f"F-GB10-{name}-001") for name in ("STEP-SPLIT", "SPEEDUP"))
SHARES = st.lists(st.floats(30.0, 40.0), min_size=4, max_size=12)


@given(SHARES, st.floats(-3.0, 3.0))
def test_a_share_is_as_exact_as_two_measurements_of_it(first: list[float], shift: float) -> None:
    """The interval contains what the second measurement gives, and the first one's extremes bound the estimate."""
    share = forward_share(first, [seconds + shift for seconds in first], seed=0)
    assert share.low <= share.estimate + shift + 1e-9
    assert share.high >= share.estimate + shift - 1e-9
    assert min(first) - 1e-9 <= share.estimate <= max(first) + 1e-9


@pytest.mark.parametrize(("apart", "is_decided"), [(0.1, True), (6.0, False)])
def test_a_limit_within_what_the_shares_differ_by(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, apart: float, is_decided: bool
) -> None:
    """The subject says a third. Its limit of 38 % lies within 6 points of that, and not within a tenth of one."""
    measured = iter([[33.3, 33.4, 33.3, 33.4], [33.3 + apart, 33.4 + apart, 33.3 + apart, 33.4 + apart]])
    monkeypatch.setattr(step_parts, "_forward_shares", lambda *given: next(measured))
    monkeypatch.setattr(step_parts, "_error_where_waiting_counts", lambda *given: 0.0)
    if not is_decided:
        with pytest.raises(NotMeasured, match="is in that interval"):
            judged(SPLIT, SPLIT.subject, tmp_path)
        return
    assert judged(SPLIT, SPLIT.subject, tmp_path).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("forward_percent", ["minimum", "maximum"]),
        ("backward_percent", ["minimum", "maximum"]),
        ("backward_over_forward", ["minimum", "maximum"]),
        ("forward_error", ["maximum"]),
        ("backward_error", ["maximum"]),
    ],
)
def test_the_falsifier_knows_the_limits_that_clauses_have(name: str, ends: list[str]) -> None:
    clauses = {clause.id: clause.bound.limit for clause in SPLIT.clauses if clause.id.startswith(f"{name}.m")}
    for profile in SPLIT.profiles.values():
        assert list(profile.parameters[name]) == [clauses[f"{name}.{end}"] for end in ends]


def timed(**arms: float) -> Callable[..., Timing]:
    """A stand-in for `interleave`, whose arms take so many times a second, with a noise of some per mille."""

    def interleave(given: dict[str, object], *, rounds: int, **rest: object) -> Timing:
        chance = random.Random(0)
        seconds = {name: arms.get(name.removesuffix(" again"), 1.0) for name in given}
        return Timing(
            {name: tuple(t * chance.uniform(0.995, 1.005) for _ in range(rounds)) for name, t in seconds.items()},
            (),
            0,
        )

    return interleave


@pytest.mark.parametrize(
    ("arms", "undecided", "failed"),
    [
        ({"triton": 0.9, "liger": 1.1}, False, set()),
        ({"triton": 1.1, "liger": 1.1}, False, {"triton-faster"}),
        ({"triton": 0.9, "liger": 0.9}, False, {"liger-slower"}),
        ({"triton": 0.952, "liger": 1.1}, True, set()),
        ({"triton": 0.97, "liger": 1.1}, False, {"triton-faster"}),
        ({"triton": 0.9, "liger": 0.999}, True, set()),
    ],
)
def test_an_interval_around_its_limit_says_nothing_of_a_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arms: dict[str, float], undecided: bool, failed: set[str]
) -> None:
    """A path whose interval lies on the other side refutes the claim."""
    monkeypatch.setattr(step_speed, "interleave", timed(**arms))
    given = {"rounds": 40, "noise_limit": 1.05}
    if undecided:
        with pytest.raises(NotMeasured, match="cannot decide"):
            judged(SPEEDUP, SPEEDUP.subject, tmp_path, **given)
        return
    judgment = judged(SPEEDUP, SPEEDUP.subject, tmp_path, **given)
    assert {clause.id for clause in judgment.with_outcome(Outcome.FAIL)} == failed
