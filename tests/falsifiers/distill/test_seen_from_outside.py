"""The measurements of these claims for an external trainer: its checkpoints, its steps, and the hidden values."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.falsifiers.distill.outside import (
    BIGRAMS,
    PERIOD,
    SMOKE,
    clauses,
    failed,
    historical_run,
    named,
    outcomes,
    outside,
    record,
    run,
)
from tests.tools.trainer.trainers import BIGRAMS_FILE

_HIDDEN = {"export_wrong", "foreign", "metadata_untrue", "miscounted"}
"""Measurements of PERIOD that need the trainer's process."""


def test_checkpoints_are_looked_at(folder: Path) -> None:
    """Their names are checked, whether they are complete, and whether they equal those of another run."""
    seen = outside(folder, PERIOD, padded="--padded", periods=[0], steps_of_many=0, steps_without_period=2)
    lists = ("missing", "unreadable", "incomplete", "different")
    assert ([seen.measurements[name] for name in lists], seen.measurements["matched"]) == ([[], [], [], []], 3)
    assert not _HIDDEN & seen.measurements.keys()
    assert (seen.ending, set(seen.unseen)) == ("", _HIDDEN)


@pytest.mark.parametrize(
    ("fail", "findings"),
    [
        ("", {}),
        ("skipped-checkpoint", {"missing": ["N=2: step 4", "N=3: step 6"]}),
        ("extra-checkpoint", {"unexpected": ["N=2: model_3.pt", "N=2: model_5.pt", "N=2: model_7.pt"]}),
        ("unfinished-checkpoint", {"unexpected": [f"N=2: model_{step}.pt.tmp" for step in (2, 4, 6)]}),
        ("half-checkpoint", {"unreadable": ["N=2: model_2.pt", "N=2: model_4.pt", "N=2: model_6.pt"]}),
    ],
)
def test_checkpoints_are_called_as_the_trainers_file_says(folder: Path, fail: str, findings: dict[str, Any]) -> None:
    """A healthy trainer with its own names has neither a missing nor an extra checkpoint.

    A defective one is still refuted.
    """
    periods = [3] if fail == "skipped-checkpoint" else []
    seen = outside(folder, PERIOD, fail=fail, periods=periods, steps_of_many=0, steps_without_period=2)
    compared = {"different": [], "matched": 3}
    is_compared = fail not in ("skipped-checkpoint", "half-checkpoint")  # the other run lacks a file, too
    lists = ("missing", "unexpected", "unreadable", "incomplete", "misreported")
    assert seen.measurements == {name: [] for name in lists} | findings | (compared if is_compared else {})
    assert (seen.ending, set(seen.unseen)) == ("", _HIDDEN | (set() if is_compared else compared.keys()))


@pytest.mark.parametrize(
    ("fail", "finding"),
    [("stale-checkpoint", "N=2: model_2.pt: scale"), ("first-weights", "N=1: step 2 holds the weights of step 1")],
)
def test_checkpoints_with_other_weights_are_told_by_another_run(folder: Path, fail: str, finding: str) -> None:
    """A file with the weights of the save before, or always with the first, is not what another run of it saves."""
    seen = outside(folder, PERIOD, fail=fail, periods=[3], steps_of_many=0, steps_without_period=2)
    assert finding in seen.measurements["different"]


def test_a_trainer_that_does_not_repeat_itself_cannot_be_compared(folder: Path) -> None:
    """Two equal runs differ. So whether a file holds the weights of its step is not known, and refutes nothing."""
    seen = outside(folder, PERIOD, fail="unseeded", periods=[], steps_of_many=0, steps_without_period=2)
    assert "two equal runs" in seen.unseen["different"]


def test_a_trainer_whose_checkpoints_nobody_names(folder: Path) -> None:
    """The trainer is not run, because nothing could be measured. It is not blamed for missing checkpoints."""
    text = BIGRAMS_FILE.read_text().replace('checkpoints = "{output}/*[0-9].pt"\n', "")
    place = folder / "bigrams.toml"
    place.write_text(re.sub(r"(?m)^step = .*\n", "", text))
    seen = outside(folder, PERIOD, trainer=str(place), periods=[], steps_of_many=0, steps_without_period=2)
    assert (seen.measurements, seen.ending) == ({}, "NotObserved")
    assert "bigrams.toml" in seen.reason
    assert not (folder / "workspace" / "output").exists()


def test_what_takes_a_hand_in_its_process_is_not_measured(folder: Path) -> None:
    """No clause is refuted. These trials fork, so the test uses the command line."""
    claims = ("F-DISTILL-CKPT-CRASH-001", "F-DISTILL-CKPT-FAILSOFT-001")
    options = ["--profile", "reduced", "--subject", f"command:{BIGRAMS}", *named(folder)]
    status, said = run(folder, *claims, *options)
    assert status == 3, said
    for claim in claims:
        assert record(folder, claim)["verdict"] == "NOT_MEASURED"
        assert set(clauses(folder, claim).values()) == {"NOT_MEASURED"}
    assert "Traceback" not in said


def test_a_run_that_is_over_is_not_killed(tmp_path: Path) -> None:
    """A finished run cannot be killed, and its disk cannot be made to fail. The clauses are NOT_MEASURED."""
    options = ["--subject", "recorded:trainers/apr-distill.toml", "-P", f"dir={historical_run(tmp_path)}"]
    status, said = run(tmp_path, "F-DISTILL-CKPT-CRASH-001", *options, "--profile", "reduced")
    assert (status, set(clauses(tmp_path).values())) == (3, {"NOT_MEASURED"}), said


@pytest.mark.parametrize("claim", [SMOKE, "F-DISTILL-BATCH-001", "F-DISTILL-EMBED-001"])
def test_what_cannot_be_seen_is_no_defect(folder: Path, claim: str) -> None:
    """A hidden value is NOT_MEASURED, not a FAIL."""
    seen = outside(folder, claim)
    assert seen.unseen or seen.ending == "NotObserved"
    assert not failed(outcomes(claim, seen, {}))


def test_what_cannot_be_seen_is_said_of_each_measurement(folder: Path) -> None:
    """Each measurement that was not made has its reason, by name."""
    seen = outside(folder, SMOKE)
    assert {"initial_kl", "final_loss", "teacher_drift", "corpus_digest"} <= seen.unseen.keys()
    assert {"steps_executed", "steps_reported", "reported_losses"} <= seen.measurements.keys()
    assert not seen.unseen.keys() & seen.measurements.keys()


def test_steps_that_are_not_told_move_nothing_that_was_looked_at(folder: Path) -> None:
    """If no pattern matches a line of a healthy trainer, clauses on moved weights are NOT_MEASURED."""
    file = folder / "deaf.toml"
    here = str(BIGRAMS_FILE.parent)
    file.write_text(BIGRAMS_FILE.read_text().replace("'it (?P", "'never (?P").replace("{here}", here))
    seen = outside(folder, SMOKE, trainer=str(file))
    assert "weight_changes" not in seen.measurements
    assert seen.measurements["unmoved"] == []  # by the export and the initial file
    shutil.rmtree(folder / "workspace")
    found = outside(folder, SMOKE, watch_every=2, checkpoint_every=2)
    assert (found.measurements["unmoved"], found.measurements["weight_changes"]) == ([], 25)
