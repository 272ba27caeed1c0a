"""Every distillation falsifier on healthy and defective subjects, in the shortest possible runs."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from pydoc_data import topics
from typing import Any

import pytest
import torch

from falsifiers.distill.measuring.answers import measure_answers
from falsifiers.distill.measuring.held_out import HeldOut
from falsifiers.distill.reference import Distillation
from falsifiers.distill.subject import OnStep, Run
from harness import NotMeasured
from harness.authoring.timing import Timing
from harness.base import strictjson
from tests.falsifiers.distill.outside import record, run, small_project
from tests.falsifiers.distill.trials import CONTRACTS, a_mutant, a_setting, a_trial

MAX_STEPS = "F-DISTILL-MAXSTEPS-001"
PERIOD = "F-DISTILL-CKPT-PERIOD-001"
ROUNDTRIP = "F-DISTILL-CKPT-ROUNDTRIP-001"
CRASH = "F-DISTILL-CKPT-CRASH-001"
LOG_OVERHEAD = "F-DISTILL-LOG-OVERHEAD-001"
PREPARATION = "F-DISTILL-PREP-001"
FAIL_SOFT = "F-DISTILL-CKPT-FAILSOFT-001"
EXPORT = "F-DISTILL-CKPT-EXPORT-001"
BATCH = "F-DISTILL-BATCH-001"
EMBEDDING = "F-DISTILL-EMBED-001"
LEARNING_RATE = "F-DISTILL-LR-001"
DATA = "F-DISTILL-DATA-001"

IN_PROCESS: dict[str, dict[str, Any]] = {
    MAX_STEPS: {"requests": [1, 2], "refused": [0, -1]},
    PERIOD: {"steps": 4, "periods": [1, 3, 4, 5, 0], "steps_of_many": 2, "steps_without_period": 3},
    ROUNDTRIP: {"dropout": 0.2},
    PREPARATION: {"top_k": 64},
    EXPORT: {"required_metadata": ["teacher_model", "temperature", "alpha", "epoch", "step", "final_loss"]},
    BATCH: {},
    EMBEDDING: {"embedding": "model.embed_tokens.weight", "learning_rate": 1.5e-5},
    LEARNING_RATE: {"learning_rate": 1.5e-5, "warmup_steps": 2, "gradient_norm": 0.01},
    DATA: {"batches": 60, "corpus": topics.__file__},
    LOG_OVERHEAD: {
        "steps": 24,
        "steps_a_sample": 2,
        "log_every": 2,
        "ratio_limit": 1e9,
        "milliseconds_limit": 1e9,
    },
}
"""The claims whose runs share this process, with their additional parameters beyond those of a quick run."""


def declared(claim: str) -> frozenset[str]:
    """The measurements that the claim's contract declares."""
    return frozenset(json.loads((CONTRACTS / claim / "contract.json").read_text())["observation"]["properties"])


def measured(claim: str, folder: Path, subject: Any = Distillation, **changed: Any) -> dict[str, Any]:
    """The measurements of the claim's falsifier for a subject, or the mutant of that name, in this process."""
    if isinstance(subject, str):
        with a_mutant(claim, subject) as (patched, _):
            return measured(claim, folder, patched, **changed)
    module, _, name = json.loads((CONTRACTS / claim / "contract.json").read_text())["falsifier"].partition(":")
    trial, recorded = a_trial(a_setting(folder, **{**IN_PROCESS[claim], **changed}), subject, declared(claim))
    getattr(importlib.import_module(module), name)(trial)
    assert recorded.resolved["device"] == "cpu"
    return recorded.measurements


@pytest.mark.parametrize("claim", IN_PROCESS)
def test_a_falsifier_measures_what_its_contract_declares(tmp_path: Path, claim: str) -> None:
    """The falsifier measures everything that its contract declares, and nothing else."""
    assert measured(claim, tmp_path).keys() == declared(claim)


def test_steps_are_counted_and_nonsense_is_refused(tmp_path: Path) -> None:
    """The profile's own number of steps comes first, then the other requests."""
    seen = measured(MAX_STEPS, tmp_path)
    assert seen["requested"] == seen["executed"] == [3, 1, 2]
    assert seen["surplus"] == seen["idle"] == seen["overstated"] == [0, 0, 0]
    assert seen["accepted"] == []


def test_a_run_without_end_is_ended(tmp_path: Path) -> None:
    """A run that takes 0 for "no limit" is ended, and the measurement names the request."""
    assert measured(MAX_STEPS, tmp_path / "zero", "zero-is-endless")["accepted"] == [0]
    assert measured(MAX_STEPS, tmp_path / "less", "negative-is-nothing")["accepted"] == [-1]


def test_every_checkpoint_is_looked_at(tmp_path: Path) -> None:
    """The runs ask for a checkpoint of two of four steps, of four, of one, of none, and of two of two."""
    assert measured(PERIOD, tmp_path) == {
        "missing": [],
        "unexpected": [],
        "unreadable": [],
        "incomplete": [],
        "different": [],
        "foreign": [],
        "metadata_untrue": [],
        "miscounted": [],
        "misreported": [],
        "export_wrong": [],
        "matched": 10,
    }


class FrozenNorm(Distillation):
    """Trains all parameters but the last norm's."""

    def distill(self, on_step: OnStep) -> Run:
        """Freeze it."""
        self.student.model.norm.weight.requires_grad_(False)
        return super().distill(on_step)


def test_a_frozen_tensor_is_no_fault_of_an_export(tmp_path: Path) -> None:
    found = measured(PERIOD, tmp_path, FrozenNorm)
    assert found["matched"] == 10
    assert [name for name, value in found.items() if value != 10 and value] == []


@pytest.mark.parametrize(
    ("subject", "finding", "first"),
    [
        ("forgotten-last", "missing", "N=2: ckpt-step-000004"),
        ("no-directory", "missing", "N=2: ckpt-step-000002"),
        ("never-off", "unexpected", "N=0: ckpt-step-000003.safetensors"),
        ("late-copy", "different", "N=2: ckpt-step-000002.safetensors: model.embed_tokens.weight"),
    ],
)
def test_a_wrong_checkpoint_is_named(tmp_path: Path, subject: Any, finding: str, first: str) -> None:
    """The measurement has the distance of the run, the name of the checkpoint, and its fault."""
    assert measured(PERIOD, tmp_path, subject)[finding][0] == first


def test_a_function_is_compared_and_not_only_its_weights(tmp_path: Path) -> None:
    """A head that loading has untied differs in no saved parameter, but its logits differ."""
    untied = measured(ROUNDTRIP, tmp_path / "untied", "untied-on-load")
    assert untied["different"] == untied["missing"] == untied["unexpected"] == []
    assert min(untied["logits_differences"]) > 0.1
    downcast = measured(ROUNDTRIP, tmp_path / "downcast", "downcast-on-load")
    assert "model.embed_tokens.weight" in downcast["different"]
    assert min(downcast["logits_differences"]) > 0


def test_log_lines_are_looked_for(tmp_path: Path) -> None:
    """Half of eight steps have a line. A log that is never there or always there is measured as such."""
    seen = measured(LOG_OVERHEAD, tmp_path)
    assert 2 <= seen["lines_expected"] <= 6
    assert seen["lines_missing"] == seen["lines_unasked"] == 0
    assert seen["ratio_low"] <= seen["ratio"] <= seen["ratio_high"]
    nothing = measured(LOG_OVERHEAD, tmp_path / "nothing", "logs-nothing")
    assert nothing["lines_missing"] == nothing["lines_expected"]
    assert measured(LOG_OVERHEAD, tmp_path / "always", "logs-always")["lines_unasked"] > 0


def test_log_lines_are_held_against_the_run(tmp_path: Path) -> None:
    """Every second of eight steps has a line. If each line has the loss of the step before, all four are untrue."""
    assert measured(LOG_OVERHEAD, tmp_path / "healthy")["lines_untrue"] == []
    assert measured(LOG_OVERHEAD, tmp_path / "late", "logs-loss-before")["lines_untrue"] == [2, 4, 6, 8]


@pytest.mark.parametrize(("noise", "limit", "decided"), [(0.0, 1.05, True), (0.2, 1.05, False), (0.2, 1e-9, True)])
def test_a_restless_machine_gives_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: float, limit: float, decided: bool
) -> None:
    """A limit within the noise cannot be decided. An excess that is clear in spite of the noise is measured."""

    def interleave(arms: Mapping[str, Callable[[], object]], *, rounds: int, seed: int, **_: object) -> Timing:
        for work in arms.values():
            work()
        steady = dict.fromkeys(arms, (1.0,) * rounds)
        restless = tuple(1.0 + noise * (-1) ** number for number in range(rounds))
        return Timing({**steady, "silent again": restless}, (), seed)

    monkeypatch.setattr("falsifiers.distill.log_overhead.interleave", interleave)
    with contextlib.nullcontext() if decided else pytest.raises(NotMeasured):
        seen = measured(LOG_OVERHEAD, tmp_path, ratio_limit=limit, milliseconds_limit=60000.0)
        assert seen["ratio_low"] <= 1 <= seen["ratio_high"]


def test_answers_are_compared_and_made_again(tmp_path: Path) -> None:
    """The healthy file is made again with the same bytes. A key that leaves out a setting is named by it."""
    seen = measured(PREPARATION, tmp_path / "healthy")
    assert seen["unlike"] == []
    assert seen["cosine_distance"] < 0.01
    assert measured(PREPARATION, tmp_path / "blind", "teacher-not-in-the-key")["unlike"] == [
        "over that of another teacher"
    ]
    assert measured(PREPARATION, tmp_path / "deaf", "text-not-in-the-key")["unlike"] == ["over that of other text"]
    assert measured(PREPARATION, tmp_path / "rest", "drops-the-rest")["divergence"] == {"nonfinite": "Infinity"}
    assert measured(PREPARATION, tmp_path / "steps", "steps-not-in-the-key")["unlike"] == ["over that of more steps"]
    assert measured(PREPARATION, tmp_path / "width", "width-not-in-the-key")["unlike"] == ["over that of fewer logits"]


def test_a_cache_is_held_against_the_best_of_its_kind(tmp_path: Path) -> None:
    """A cache with the weight of the rest comes near the best.

    One with a floor for the rest is finite and far from it.
    """
    healthy = measured(PREPARATION, tmp_path / "healthy")
    assert 0.9 < healthy["divergence"] / healthy["divergence_of_even_rest"] < 2
    assert measured(PREPARATION, tmp_path / "floor", "rest-floored")["divergence"] > 100


def test_a_batch_that_comes_again_is_told(tmp_path: Path) -> None:
    """The measurement has the steps whose batch occurred before. The steps of a healthy run have different batches."""
    assert measured(PREPARATION, tmp_path / "healthy")["repeated_batches"] == []
    assert measured(PREPARATION, tmp_path / "again", "one-batch-for-all-steps")["repeated_batches"] == [2, 3]


def test_other_text_is_found_by_its_steps(tmp_path: Path) -> None:
    """A healthy run has no step with other text. A defect shows in what the subject shows, draws again, or reads."""
    healthy = measured(DATA, tmp_path / "healthy")
    assert healthy.pop("batches") == 60
    assert healthy.pop("teacher_divergence") < 1e-4
    assert not any(healthy.values())
    assert measured(DATA, tmp_path / "random", "random-inputs")["foreign_rows"] == list(range(1, 61))
    assert measured(DATA, tmp_path / "held", "held-out-too")["held_out_rows"] != []
    assert measured(DATA, tmp_path / "count", "batch-by-count")["changed"] == [1, 2, 3]
    assert measured(DATA, tmp_path / "before", "batch-before")["read_otherwise"] == [2, 3]
    assert measured(DATA, tmp_path / "start", "beginning-only")["position_gap"] > 0.2


def test_a_gradient_is_held_against_the_independent_models(tmp_path: Path) -> None:
    """A healthy gradient is within rounding.

    A loss without the divergence's gradient, and other labels, are far from it.
    """
    healthy = measured(BATCH, tmp_path / "healthy")
    errors = ("gradient_error", "gradient_error_of_drawn_tokens", "gradient_error_again")
    assert max(healthy[name] for name in errors) < 0.1
    assert measured(BATCH, tmp_path / "cut", "divergence-cut-off")["gradient_error"] > 100
    assert measured(BATCH, tmp_path / "shifted", "labels-shifted-twice")["gradient_error_of_drawn_tokens"] > 100


def test_a_gradient_that_is_carried_on_is_found(tmp_path: Path) -> None:
    """If the second step leaves its gradient, the third one shows it.

    A gradient with only the batch's rows is found too.
    """
    assert max(measured(EMBEDDING, tmp_path / "healthy")["gradient_errors"]) < 0.1
    carried = measured(EMBEDDING, tmp_path / "carried", "cleared-every-second-step")["gradient_errors"]
    assert carried[2] > 100 > 0.1 > max(carried[:2])
    assert min(measured(EMBEDDING, tmp_path / "seen", "only-rows-seen-decay")["gradient_errors"]) > 100


def test_answers_are_held_against_the_independent_model(tmp_path: Path) -> None:
    """The logits follow from the weights of each model.

    A layer that is left out is attributed to the model that lacks it.
    """
    errors = frozenset({"student_logits_error", "teacher_logits_error"})

    def wrong(subject: Any) -> set[str]:
        trial, recorded = a_trial(a_setting(tmp_path), subject, errors)
        measure_answers(trial, HeldOut.of(trial))
        return {error for error in errors if recorded.measurements[error] > 1}

    assert wrong(Distillation) == set()
    for mutant, error in (("layer-skipped", "student"), ("teacher-layer-skipped", "teacher")):
        with a_mutant("F-DISTILL-KL-MOVES-001", mutant) as (subject, _):
            assert wrong(subject) == {f"{error}_logits_error"}


def test_the_rate_of_every_tensor_follows_the_schedule(tmp_path: Path) -> None:
    """In the first of two warm-up steps the rate is half. A group that stays at half is wrong by half afterwards."""
    healthy = measured(LEARNING_RATE, tmp_path / "healthy")
    assert max(healthy["rate_errors"]) < 0.02
    assert healthy["gradient_norm_over_limit"] <= 1.001
    behind = measured(LEARNING_RATE, tmp_path / "behind", "schedule-of-one-group")["rate_errors"]
    assert behind[0] < 0.05
    assert behind[1:] == pytest.approx([0.5, 0.5], abs=0.05)
    assert measured(LEARNING_RATE, tmp_path / "uncut", "not-clipped")["gradient_norm_over_limit"] > 2


class _LeavesNan(Distillation):
    def update(self, loss: Any, step: int) -> None:
        super().update(loss, step)
        slots = self.optimizer_state()
        slots[sorted(slots)[-1]]["exp_avg"].fill_(float("nan"))


def test_a_nan_in_one_tensor_is_not_lost_among_the_others(tmp_path: Path) -> None:
    found = strictjson.untag_nonfinite(measured(LEARNING_RATE, tmp_path, _LeavesNan))
    assert all(math.isnan(error) for error in found["rate_errors"])
    assert math.isnan(found["gradient_norm_over_limit"])


class _Silent(Distillation):
    def distill(self, on_step: Any) -> Any:
        return super().distill(lambda step, **values: None)


def test_a_subject_that_tells_none_of_its_steps_is_refuted(tmp_path: Path) -> None:
    found = strictjson.untag_nonfinite(measured(LEARNING_RATE, tmp_path, _Silent))
    assert math.isnan(found["first_rate"])
    assert found["rates"] == found["rate_errors"] == []


class _TeachesNan(Distillation):
    def teacher_weights(self) -> Any:
        weights = super().teacher_weights()
        with torch.no_grad():
            weights["model.norm.weight"].fill_(float("nan"))
        return weights


def test_a_teacher_of_nan_is_no_stated_teacher(tmp_path: Path) -> None:
    found = strictjson.untag_nonfinite(measured(DATA, tmp_path, _TeachesNan))
    assert math.isnan(found["teacher_divergence"])


class _KeepsNoLog(Distillation):
    def distill(self, on_step: Any) -> Any:
        run = super().distill(on_step)
        self.log.unlink()
        return run


def test_a_step_without_a_line_is_told(tmp_path: Path) -> None:
    assert measured(LOG_OVERHEAD, tmp_path, _KeepsNoLog)["lines_untrue"] == [2, 4, 6, 8]


def test_an_export_holds_what_the_last_step_left(tmp_path: Path) -> None:
    """Tensors that replace the weights in memory too do not differ from the export, but they are not trained."""
    averaged = measured(EXPORT, tmp_path, "averaged-at-end")
    assert averaged["different"] == []
    assert "model.embed_tokens.weight" in averaged["not_of_last_step"]


def test_runs_that_die_are_survived(tmp_path: Path) -> None:
    """The trials of these claims fork, and this process has threads, so they run from the command line."""
    killed_by = {
        CRASH: {"writes-in-place": "torn.maxItems"},
        FAIL_SOFT: {
            "harmless-export": "exit_codes_without_export[].minimum",
            "keeps-failed-copy": "different_afterwards.maxItems",
        },
    }
    project = small_project(tmp_path, killed_by)
    status, said = run(tmp_path, *killed_by, "--profile", "reduced", mutants=True, project=project)
    assert status == 0, said
    for claim, mutants in killed_by.items():
        sealed = record(tmp_path, claim)
        assert (sealed["verdict"], sealed["proven"]) == ("PASS", True)
        failed = {mutant["id"]: mutant["failed"] for mutant in sealed["mutants"]}
        assert failed.keys() == mutants.keys()
        assert all(clause in failed[mutant] for mutant, clause in mutants.items())
