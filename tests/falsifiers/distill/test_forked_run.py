"""A process that a trial forks for a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from falsifiers.distill.running.forked_run import ForkedRun, Report
from harness import NotMeasured, NotObserved


class Refused(NotMeasured):
    """An exception that cannot be pickled, because its arguments are not its text."""

    def __init__(self, program: str, status: int) -> None:
        """Make the text from both arguments."""
        super().__init__(f"{program} refused its command line with {status}")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [(NotObserved("the logits are not shown"), NotObserved), (Refused("train", 2), NotMeasured)],
)
def test_what_was_not_measured_in_a_child_is_not_measured(tmp_path: Path, reason: NotMeasured, kind: type) -> None:
    """The reason arrives after the steps that were reported before it. The subject is not blamed."""

    def work(report: Report) -> None:
        report(1, 2.0)
        raise reason

    run = ForkedRun(work, tmp_path / "log")
    with pytest.raises(NotMeasured) as raised:
        run.finish()
    assert (type(raised.value), str(raised.value)) == (kind, str(reason))
    assert (run.steps, run.answer) == ([(1, 2.0)], None)


def test_what_else_is_raised_in_a_child_is_told_by_its_end(tmp_path: Path) -> None:
    """The exit status is 1, and the parent decides about the fault."""

    def work(report: Report) -> None:
        report(1, 2.0)
        raise OSError("something broke")

    run = ForkedRun(work, tmp_path / "log").finish()
    assert (run.exit_code, run.steps) == (1, [(1, 2.0)])
