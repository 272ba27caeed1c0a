"""Step series of any length, within bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.execution.steps import Steps, StepSeries


@given(st.integers(min_value=0, max_value=3000), st.integers(min_value=2, max_value=64))
def test_thinning(count: int, most: int) -> None:
    """The rows are the first, every stride-th after it, and the last: at most the limit, plus the last."""
    series = StepSeries(most)
    for step in range(count):
        series.add({"step": step})
    steps = series.close()
    assert steps.count == count
    kept = [row["step"] for row in steps.rows]
    expected = list(range(0, count, steps.stride))
    if count and expected[-1] != count - 1:
        expected.append(count - 1)
    assert kept == expected
    assert len(kept) <= most + 1
    assert steps.stride == 1 or len(kept) >= most // 2


def test_without_steps() -> None:
    assert StepSeries().close() == Steps()
