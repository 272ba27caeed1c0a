"""Every falsifier of this spec on healthy and defective subjects, in runs as short as they can be."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from falsifiers.distill.mutants.loading import DowncastOnLoad, UntiedOnLoad
from falsifiers.distill.mutants.logging import EvaluatesToLog, LogsAlways, LogsNothing
from falsifiers.distill.mutants.precomputing import DropsTheRest, TeacherNotInTheKey, TextNotInTheKey
from falsifiers.distill.mutants.saving import ForgottenLast, LateCopy, NeverOff, NoDirectory
from falsifiers.distill.mutants.stepping import ZeroIsEndless
from falsifiers.distill.reference import Distillation
from harness import NotMeasured
from tests.cli.harness_command import COMMAND, environment
from tests.falsifiers.distill.trials import CONTRACTS, a_setting, a_trial

MAX_STEPS = "F-DISTILL-MAXSTEPS-001"
PERIOD = "F-DISTILL-CKPT-PERIOD-001"
ROUNDTRIP = "F-DISTILL-CKPT-ROUNDTRIP-001"
CRASH = "F-DISTILL-CKPT-CRASH-001"
LOG_OVERHEAD = "F-DISTILL-LOG-OVERHEAD-001"
PREPARATION = "F-DISTILL-PREP-001"
FAIL_SOFT = "F-DISTILL-CKPT-FAILSOFT-001"

IN_PROCESS: dict[str, dict[str, Any]] = {
    MAX_STEPS: {"requests": [1, 2], "refused": [0, -1]},
    PERIOD: {"steps": 4, "periods": [1, 3, 4, 5, 0], "steps_without_period": 3},
    ROUNDTRIP: {"dropout": 0.2},
    PREPARATION: {"top_k": 64},
    LOG_OVERHEAD: {
        "steps": 24,
        "steps_a_sample": 2,
        "log_every": 2,
        "ratio_limit": 1e9,
        "milliseconds_limit": 1e9,
        "noise_limit": 1e9,
    },
}
"""The claims whose runs share this process, with what they ask for beyond the parameters of a quick run."""


def declared(claim: str) -> frozenset[str]:
    """The measurements that the claim's contract declares."""
    return frozenset(json.loads((CONTRACTS / f"{claim}.json").read_text())["observation"]["properties"])


def measured(claim: str, folder: Path, subject: Any = Distillation, **changed: Any) -> dict[str, Any]:
    """What the claim's falsifier measures of a subject in this process."""
    module, _, name = json.loads((CONTRACTS / f"{claim}.json").read_text())["falsifier"].partition(":")
    trial, recorded = a_trial(a_setting(folder, **{**IN_PROCESS[claim], **changed}), subject, declared(claim))
    getattr(importlib.import_module(module), name)(trial)
    assert recorded.resolved["device"] == "cpu"
    return recorded.measurements


@pytest.mark.parametrize("claim", IN_PROCESS)
def test_a_falsifier_measures_what_its_contract_declares(tmp_path: Path, claim: str) -> None:
    """Everything, and nothing else."""
    assert measured(claim, tmp_path).keys() == declared(claim)


def test_steps_are_counted_and_nonsense_is_refused(tmp_path: Path) -> None:
    """The profile's own steps first, then the other requests."""
    seen = measured(MAX_STEPS, tmp_path)
    assert seen["requested"] == seen["executed"] == [3, 1, 2]
    assert seen["surplus"] == seen["idle"] == seen["overstated"] == [0, 0, 0]
    assert seen["accepted"] == []


def test_a_run_without_end_is_ended(tmp_path: Path) -> None:
    """And the request that it took for 'no limit' is told."""
    assert measured(MAX_STEPS, tmp_path, ZeroIsEndless)["accepted"] == [0]


def test_every_checkpoint_is_looked_at(tmp_path: Path) -> None:
    """Two of four steps, then four, one, one, none and none."""
    assert measured(PERIOD, tmp_path) == {
        "missing": [],
        "unexpected": [],
        "unreadable": [],
        "incomplete": [],
        "different": [],
        "misreported": [],
        "matched": 8,
    }


@pytest.mark.parametrize(
    ("subject", "finding", "first"),
    [
        (ForgottenLast, "missing", "N=2: ckpt-step-000004"),
        (NoDirectory, "missing", "N=2: ckpt-step-000002"),
        (NeverOff, "unexpected", "N=0: ckpt-step-000003.safetensors"),
        (LateCopy, "different", "N=2: ckpt-step-000002.safetensors: model.embed_tokens.weight"),
    ],
)
def test_a_wrong_checkpoint_is_named(tmp_path: Path, subject: Any, finding: str, first: str) -> None:
    """By the distance of its run, its name, and what is wrong with it."""
    assert measured(PERIOD, tmp_path, subject)[finding][0] == first


def test_a_function_is_compared_and_not_only_its_weights(tmp_path: Path) -> None:
    """A head that was untied in loading differs in no parameter that is saved."""
    untied = measured(ROUNDTRIP, tmp_path / "untied", UntiedOnLoad)
    assert untied["different"] == untied["missing"] == untied["unexpected"] == []
    assert min(untied["logits_differences"]) > 0.1
    downcast = measured(ROUNDTRIP, tmp_path / "downcast", DowncastOnLoad)
    assert "model.embed_tokens.weight" in downcast["different"]
    assert min(downcast["logits_differences"]) > 0


def test_log_lines_are_looked_for(tmp_path: Path) -> None:
    """Half of eight steps have a line; a log that is never there, or always, is told."""
    seen = measured(LOG_OVERHEAD, tmp_path)
    assert 2 <= seen["lines_expected"] <= 6
    assert seen["lines_missing"] == seen["lines_unasked"] == 0
    assert seen["ratio_low"] <= seen["ratio"] <= seen["ratio_high"]
    nothing = measured(LOG_OVERHEAD, tmp_path / "nothing", LogsNothing)
    assert nothing["lines_missing"] == nothing["lines_expected"]
    assert measured(LOG_OVERHEAD, tmp_path / "always", LogsAlways)["lines_unasked"] > 0


def test_a_restless_machine_gives_no_verdict(tmp_path: Path) -> None:
    """Where equal arms differ nothing is measured; an excess that is clear all the same is."""
    with pytest.raises(NotMeasured, match="too restless"):
        measured(LOG_OVERHEAD, tmp_path / "noise", noise_limit=1.0)
    assert measured(LOG_OVERHEAD, tmp_path / "clear", EvaluatesToLog, ratio_limit=1e-9)["ratio_low"] > 1e-9


def test_answers_are_compared_and_made_again(tmp_path: Path) -> None:
    """The healthy file repeats; a key that leaves something out is named by what it mistakes for its own."""
    seen = measured(PREPARATION, tmp_path / "healthy")
    assert seen["unlike"] == []
    assert seen["cosine_distance"] < 0.01
    assert measured(PREPARATION, tmp_path / "blind", TeacherNotInTheKey)["unlike"] == ["over that of another teacher"]
    assert measured(PREPARATION, tmp_path / "deaf", TextNotInTheKey)["unlike"] == ["over that of other text"]
    assert measured(PREPARATION, tmp_path / "rest", DropsTheRest)["divergence"] == {"nonfinite": "Infinity"}


@pytest.mark.parametrize(
    ("claim", "subject", "status", "said"),
    [
        (CRASH, "reference:Distillation", 0, "PASS"),
        (CRASH, "mutants.resuming:WritesInPlace", 1, "torn.maxItems"),
        (FAIL_SOFT, "reference:Distillation", 0, "PASS"),
        (FAIL_SOFT, "mutants.failing:HarmlessExport", 1, "exit_codes_without_export[].minimum"),
    ],
)
def test_runs_that_die_are_survived(tmp_path: Path, claim: str, subject: str, status: int, said: str) -> None:
    """From the command line, because the trials of these claims fork: this process has threads by now."""
    asked = ["--profile", "reduced", "--no-mutants", "--device", "cpu", "--evidence", str(tmp_path / "evidence")]
    done = subprocess.run(
        [*COMMAND, "run", claim, *asked, "--subject", f"falsifiers.distill.{subject}"],
        cwd=CONTRACTS.parents[1], env=environment(tmp_path), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout
