"""The time that earlier runs took."""

from __future__ import annotations

from harness.base.vocabulary import Verdict
from harness.evidence.index import past_runs, whole_runs
from tests.evidence.entries import CPU, TARGET, entry


def test_runs_that_measured_something_oldest_first() -> None:
    """Runs that measured something are listed, oldest first. Each of the other runs lacks one condition."""
    late, early, brief = entry(9), entry(1, verdict=Verdict.FAIL), entry(5, trial_seconds=0.001)
    others = [
        entry(2, trial_seconds=0.0),
        entry(3, verdict=Verdict.NOT_MEASURED),
        entry(4, overrides={"steps": 4}),
    ]
    assert list(whole_runs([late, *others, early, brief])) == [early, brief, late]


def test_the_newest_run_of_each_kind() -> None:
    """The newest run counts for each claim, profile, class of device and subject. Runs without mutants are left out."""
    found = past_runs(
        [
            entry(2, seconds=2.0),
            entry(1, seconds=1.0),
            entry(3, seconds=3.0, mutants_skipped=True),
            entry(4, seconds=4.0, profile="reduced"),
            entry(5, seconds=5.0, device=CPU),
            entry(6, seconds=6.0, subject="a.b:C"),
            entry(7, seconds=7.0, id="F-DEMO-OTHER-001"),
        ]
    )
    gpu, cpu = str(entry(device=TARGET).device_class), str(entry(device=CPU).device_class)
    sorter = entry().subject
    assert found == {
        ("F-DEMO-SORT-001", "full", gpu, sorter): 2.0,
        ("F-DEMO-SORT-001", "reduced", gpu, sorter): 4.0,
        ("F-DEMO-SORT-001", "full", cpu, sorter): 5.0,
        ("F-DEMO-SORT-001", "full", gpu, "a.b:C"): 6.0,
        ("F-DEMO-OTHER-001", "full", gpu, sorter): 7.0,
    }
