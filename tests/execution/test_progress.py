"""When the time of a trial is over, and whose fault that is."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from harness.authoring.reports import Entered, Logged, Measured, Stepped, Working
from harness.base.vocabulary import Phase
from harness.execution.progress import Progress
from harness.judging.observation import EndingKind

LIMIT = 100.0
MESSAGES = st.sampled_from([Stepped(1, {}), Measured({"a": 1}), Entered(Phase.SUBJECT), Entered(Phase.FALSIFIER)])


def working(limit: float = LIMIT, is_claimed: bool = False) -> Progress:
    """A trial that is in the code of the subject since its start."""
    progress = Progress(0.0, limit, is_claimed)
    progress.hear(Entered(Phase.SUBJECT), 0.0)
    return progress


def test_a_subject_that_stands_still_is_ended_at_its_limit() -> None:
    progress = working()
    assert [progress.over(now) for now in (LIMIT, LIMIT + 0.1)] == [None, EndingKind.TIMED_OUT]
    assert "made no progress for 100 s" in progress.reason(EndingKind.TIMED_OUT, LIMIT + 0.1)


def test_a_subject_that_waits_for_a_processor_is_not_blamed() -> None:
    """Of its time, half a second more than half; and half, which may be its own doing."""
    progress = working()
    assert [progress.over(LIMIT + 1, starved) for starved in (51.0, 50.0)] == [EndingKind.SLOW, EndingKind.TIMED_OUT]
    assert "other work had the processors" in progress.reason(EndingKind.SLOW, LIMIT + 1)


def test_a_slow_step_may_end_after_the_limit() -> None:
    """Its end shows that the subject does not stand still. Then the trial is over."""
    progress = working()
    progress.hear(Stepped(1, {}), 70.0)
    assert progress.over(140.0) is None
    progress.hear(Stepped(2, {}), 145.0)
    assert progress.over(145.0) is EndingKind.SLOW
    assert "2 steps" in progress.reason(EndingKind.SLOW, 145.0)


def test_a_search_that_tries_cases_is_at_work() -> None:
    progress = working()
    for now in range(0, 102, 2):
        progress.hear(Entered(Phase.FALSIFIER), now)
        progress.hear(Entered(Phase.SUBJECT), now + 1)
    assert progress.over(102.0) is EndingKind.SLOW
    assert "51 returns" in progress.reason(EndingKind.SLOW, 102.0)


def test_lines_of_a_log_are_no_progress() -> None:
    """Only the falsifier's own reports count."""
    progress = working()
    progress.hear(Logged("at work"), 99.0)
    assert progress.over(101.0) is EndingKind.TIMED_OUT


def test_a_limit_that_is_claimed_knows_no_progress() -> None:
    progress = working(is_claimed=True)
    progress.hear(Stepped(1, {}), 99.0)
    assert progress.over(101.0) is EndingKind.TIMED_OUT


def test_a_falsifier_that_stands_still_gets_no_more_time() -> None:
    progress = working()
    progress.hear(Entered(Phase.FALSIFIER), 99.0)
    assert progress.over(101.0) is EndingKind.TIMED_OUT


@given(st.lists(st.tuples(st.floats(0.01, 60.0), MESSAGES), max_size=80))
def test_whatever_is_reported_no_trial_takes_longer_than_twice_its_limit(reports: list[tuple[float, object]]) -> None:
    """Nor does one end before its limit. It is slow only if there was progress after the limit."""
    progress, ended, latest = working(), None, 0.0
    times = accumulate(pause for pause, _ in reports)
    for now, (_, message) in zip(times, reports, strict=True):
        if ended is None and progress.over(now - 0.001):
            ended = now - 0.001
            break
        progress.hear(message, now)  # type: ignore[arg-type]
        latest = now
    assert progress.over(2 * LIMIT + 0.1) is not None
    assert ended is None or ended > LIMIT
    assert (progress.over(2 * LIMIT + 0.1) is EndingKind.SLOW) is (latest > LIMIT)


def test_the_limit_holds_for_each_run_of_a_trainer() -> None:
    """A second run has all of the time again. A run that is silent and uses the processor does not stand still."""
    progress = working()
    progress.hear(Working(1), 0.0)
    progress.hear(Working(1, "step 7/9"), 99.0)
    progress.hear(Working(2), 99.5)
    assert progress.over(199.0) is None
    progress.hear(Working(2, "epoch 1"), 150.0)
    assert progress.over(199.6) is None
    progress.hear(Working(2, "epoch 1"), 200.0)
    assert progress.over(200.0) is EndingKind.SLOW
    said = progress.reason(EndingKind.SLOW, 200.0)
    assert all(word in said for word in ("run 2", "epoch 1", "100 s for each run", "`seconds`"))


def test_a_run_of_a_trainer_that_stands_still_is_ended() -> None:
    progress = working()
    progress.hear(Working(1), 0.0)
    progress.hear(Working(2, "step 3"), 50.0)
    assert [progress.over(150.0), progress.over(151.0)] == [None, EndingKind.TIMED_OUT]
    assert "run 2 of the trainer" in progress.reason(EndingKind.TIMED_OUT, 151.0)
