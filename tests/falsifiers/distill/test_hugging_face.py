"""A transformers Trainer in this process: a healthy one passes, and each planted defect is refuted."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import HfArgumentParser, TrainingArguments

from falsifiers.distill.external import Recorded
from falsifiers.distill.hugging_face import HF
from harness import Setting
from harness.base.vocabulary import Outcome
from harness.tools.trainer.file_check import check_run
from harness.tools.trainer.trainer_file import load as trainer_file
from tests.falsifiers.distill.outside import EXPORT, MAX_STEPS, PERIOD, SMOKE, clauses, failed, outside, run
from tests.falsifiers.distill.outside import outcomes as judged_outcomes
from tests.falsifiers.distill.trials import a_setting
from tests.tools.trainer.trainers import ROOT
from trainers.kd_trainer import build

pytest.importorskip("accelerate")

READY_MADE = ROOT / "trainers" / "transformers-trainer.toml"

STEP = "F-DISTILL-STEP-001"
CRASH = "F-DISTILL-CKPT-CRASH-001"
PLANTED = "tests.falsifiers.distill.planted_trainers:"
BATCH = "F-DISTILL-BATCH-001"
EMBED = "F-DISTILL-EMBED-001"
SHORT: dict[str, dict[str, Any]] = {
    MAX_STEPS: {"steps": 4, "requests": [1, 2, 5]},
    PERIOD: {"periods": [3, 0]},
    EXPORT: {"steps": 3, "checkpoint_every": 2, "batch": 2, "sequence": 16},
    STEP: {"steps": 6, "checkpoint_every": 4, "warmup_steps": 2, "batch": 2, "sequence": 16},
    SMOKE: {"batch": 2, "sequence": 16, "held_out_batches": 1},
    BATCH: {"sequence": 16},
    EMBED: {"batch": 2, "sequence": 16},
}
"""Parameters that make each run short. The number of steps stays, because a claim speaks of fifty."""


@pytest.fixture(scope="module", autouse=True)
def _nothing_to_collect() -> Iterator[None]:
    """A Trainer collects garbage at its start, which takes longer the more objects there are."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


NOISY = "told_speed"
"""The speed of steps of a few milliseconds scatters on a busy machine."""


def corpus(folder: Path) -> Path:
    """A short text, but long enough to hold out a tenth of it."""
    text = folder / "text.py"
    text.write_bytes(b"".join(path.read_bytes() for path in sorted(ROOT.glob("harness/e*/*.py"))))
    return text


def outcomes(folder: Path, claim: str, function: str, **changed: Any) -> dict[str, Outcome]:
    """The outcome of each clause for the Trainer of a function."""
    name = function if ":" in function else f"tests.falsifiers.distill.planted_trainers:{function}"
    text = str(corpus(folder))
    seen = outside(folder, claim, HF, trainer=name, corpus=text, teacher_steps=2, **SHORT[claim], **changed)
    judged = judged_outcomes(claim, seen, SHORT[claim])
    return {name: outcome for name, outcome in judged.items() if not name.startswith(NOISY)}


def test_a_batch_without_a_label_that_counts_has_no_loss(tmp_path: Path) -> None:
    """The loss and all gradients are 0, as those of the claims' reference are; a NaN would end the training."""
    trainer = build(a_setting(tmp_path, corpus=str(corpus(tmp_path)), teacher_steps=2, **SHORT[MAX_STEPS]))
    tokens = trainer.train_dataset[0]["input_ids"][None]
    loss = trainer.compute_loss(trainer.model, {"input_ids": tokens, "labels": torch.full_like(tokens, -100)})
    loss.backward()
    assert loss.item() == 0
    assert not any(weight.grad.any() for weight in trainer.model.parameters() if weight.grad is not None)


@pytest.mark.parametrize("function", ["schedules_itself", "descends"])
def test_a_schedule_of_its_own_is_not_refuted(function: str, tmp_path: Path) -> None:
    """The first rate is 0, so the first step moves nothing. The later steps are judged by the schedule's own rates."""
    found = outcomes(tmp_path, MAX_STEPS, function)
    assert {name: outcome for name, outcome in found.items() if outcome is not Outcome.PASS} == {}


@pytest.mark.parametrize("claim", [MAX_STEPS, PERIOD, STEP, BATCH, EMBED])
def test_a_healthy_trainer_passes(claim: str, tmp_path: Path) -> None:
    """Every clause is measured, as for the reference."""
    found = outcomes(tmp_path, claim, "trainers.kd_trainer:build")
    assert {name: outcome for name, outcome in found.items() if outcome is not Outcome.PASS} == {}


def test_accumulated_gradients_are_one_step(tmp_path: Path) -> None:
    """The micro-batches of a step are its batch."""
    assert failed(outcomes(tmp_path, STEP, "accumulates")) == set()


@pytest.mark.parametrize(
    ("claim", "function", "clauses"),
    [
        (MAX_STEPS, "overstates", {"surplus[].const", "overstated[].const", "resolved.steps"}),
        (MAX_STEPS, "idle", {"idle[].const"}),
        (MAX_STEPS, "steps_twice", {"surplus[].const", "idle[].const", "overstated[].const"}),
        (MAX_STEPS, "steps_twice_by_its_own_schedule", {"idle[].const"}),
        (MAX_STEPS, "idle_at_first", {"idle[].const"}),
        (MAX_STEPS, "rests", {"idle[].const"}),
        (PERIOD, "saves_before", {"different.maxItems"}),
        (EXPORT, "exports_initial", {"different.maxItems", "unmoved.maxItems", "not_of_last_step.maxItems"}),
        (STEP, "shifts_twice", {"loss", "gradient", "first-moment"}),
        (STEP, "never_divides", {"loss"}),
        (STEP, "divides_twice", {"loss", "gradient", "first-moment"}),
        (STEP, "restarts_data", {"loss", "gradient", "first-moment"}),
        (STEP, "own_teacher", {"teacher-logits"}),
    ],
)
def test_a_planted_defect_is_refuted(claim: str, function: str, clauses: set[str], tmp_path: Path) -> None:
    """Each defect fails the clauses that name it."""
    found = failed(outcomes(tmp_path, claim, function))
    assert clauses <= found, found


def test_another_architecture_without_a_teacher_is_not_refuted(tmp_path: Path) -> None:
    """Its steps are counted and its weights are watched. Clauses that need the claim's model are NOT_MEASURED."""
    found = outcomes(tmp_path, SMOKE, "of_gpt2")
    assert failed(found) == set()
    assert found["resolved.steps"] is found["every-step-moves-weights"] is Outcome.PASS
    assert found["final_loss.type"] is Outcome.NOT_MEASURED


def test_another_architecture_is_evaluated_on_its_own_text(tmp_path: Path) -> None:
    """transformers' own class evaluates the model, so its losses and its KL have outcomes."""
    found = outcomes(tmp_path, SMOKE, "of_llama")
    assert failed(found) == set()
    measured = ("loss-falls", "kl-falls", "initial_kl.minimum", "teacher-knows-more", "every-step-moves-weights")
    assert {name: found[name] for name in measured} == dict.fromkeys(measured, Outcome.PASS)


@pytest.mark.parametrize(
    ("function", "clauses"),
    [
        ("of_llama_that_answers_as_its_teacher", {"kl-falls", "loss-falls", "every-step-moves-weights"}),
        ("of_llama_its_own_teacher", {"initial_kl.minimum", "teacher-knows-more"}),
    ],
)
def test_another_architecture_with_a_defect_is_refuted(function: str, clauses: set[str], tmp_path: Path) -> None:
    """The forward pass of the model itself is not used."""
    found = failed(outcomes(tmp_path, SMOKE, function))
    assert clauses <= found, found


@pytest.mark.parametrize("function", ["forgets_steps", "no_trainer", "of_nothing"])
def test_a_function_that_cannot_be_asked(function: str, tmp_path: Path) -> None:
    """If FUNCTION is wrong, the trial is NOT_MEASURED and the subject is not blamed."""
    assert failed(outcomes(tmp_path, MAX_STEPS, function)) == set()


def test_looking_for_checkpoints_builds_no_trainer(tmp_path: Path) -> None:
    """A Trainer may begin to use CUDA. After that, no run could be forked."""
    setting = a_setting(tmp_path, trainer="trainers.kd_trainer:build")
    (setting.workspace / "distilled" / "checkpoint-2").mkdir(parents=True)
    subject = HF(setting)
    assert list(subject.weight_files.checkpoints(subject.directory).values()) == ["checkpoint-2"]
    assert subject._built is None


@pytest.mark.parametrize(
    ("function", "torn"), [("trainers.kd_trainer:build", "PASS"), (PLANTED + "saves_in_place", "FAIL")]
)
def test_a_trainer_that_is_killed(function: str, torn: str, tmp_path: Path) -> None:
    """A Trainer writes its checkpoints in place by default. The test uses the command line, because the trial forks."""
    short = [word for name, value in {"steps": 11, "checkpoint_every": 2}.items() for word in ("-P", f"{name}={value}")]
    status, said = run(tmp_path, CRASH, "--profile", "reduced", "--subject", f"hf:{function}", *short)
    assert (status, clauses(tmp_path)["torn.maxItems"]) == (int(torn == "FAIL"), torn), said


def test_the_ready_made_file_describes_a_script(tmp_path: Path) -> None:
    """The words of the command line set the claim's parameters in transformers."""
    described = trainer_file(READY_MADE)
    parameters = {"script": "train.py", "steps": 7, "batch": 3, "learning_rate": 0.01, "checkpoint_every": 2}
    given = {**parameters, "python": "python", "output": str(tmp_path / "run"), "seed": 5, "gradient_norm": None}
    words = described.words({**given, "bf16": False})
    (read,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words[2:])
    seen = (read.max_steps, read.per_device_train_batch_size, read.learning_rate, read.save_steps, read.max_grad_norm)
    assert (seen, read.seed, read.logging_steps, read.bf16) == ((7, 3, 0.01, 2, 0.0), 5, 1, False)
    assert described.needed() <= given.keys() | described.parameters.keys()
    assert described.words({**given, "checkpoint_every": 0}).count("--save_steps") == 0


def test_the_ready_made_file_matches_what_a_trainer_leaves(tmp_path: Path) -> None:
    """The file matches log, checkpoints and export.

    If a run ends between two checkpoints, no further one is expected.
    """
    setting = a_setting(tmp_path, corpus=str(corpus(tmp_path)), warmup_steps=1)
    run = setting.workspace / "distilled"
    run.mkdir(parents=True)
    with (run / "train.log").open("w") as log, contextlib.redirect_stdout(log):
        trainer = build(setting)
        trainer.train()
        trainer.save_model(str(run))
    found = check_run(trainer_file(READY_MADE), run, {})
    assert (found.problems, found.telling.steps, found.checkpoints, found.export_tensors) == ([], 3, [2, 3], 26)
    assert found.telling.losses == pytest.approx([row["loss"] for row in trainer.state.log_history[:3]], rel=1e-3)
    parameters = {"trainer": str(READY_MADE), "dir": str(run), "steps": 3, "checkpoint_every": 2, "device": "cpu"}
    files = Recorded(Setting(parameters, "cpu", 0, tmp_path / "work", tmp_path / "cache")).weight_files
    assert list(files.checkpoints(run).values()) == ["step 2"]
