"""The ready-made TOML files on finished runs in their formats.

Healthy runs are not refuted, and planted defects are.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from falsifiers.distill.external import Recorded
from harness.base.vocabulary import Outcome
from harness.tools.trainer.file_check import check_run
from harness.tools.trainer.trainer_file import load
from tests.falsifiers.distill.outside import EXPORT, SMOKE, failed, outcomes, outside
from tests.falsifiers.distill.small_distillation import STEPS, apr_file, model, some_text, train
from tests.tools.trainer.trainers import ROOT

ASKED = {"batch": 4, "sequence": 32, "held_out_batches": 2}


@dataclass(frozen=True)
class Made:
    """A finished run, before it is written in the format of a trainer."""

    losses: Sequence[float]
    entropies: Sequence[float]
    initial: Path
    teacher: Path
    export: Path
    """The folder of the student after the run."""
    last: Path
    """The folder of the student in the checkpoint of the last step."""
    told: int = STEPS
    loss: str = "distillation"


def _as_transformers(made: Made, run: Path) -> dict[str, str]:
    shutil.copytree(made.export, run)
    shutil.copytree(made.last, run / f"checkpoint-{made.told}")
    lines = [
        {"loss": f"{loss:.4g}", "grad_norm": "1.2", "learning_rate": "0.02", "epoch": f"{step / 100}"}
        for step, loss in enumerate(made.losses, start=1)
    ]
    end = {"train_runtime": "3.9", "train_samples_per_second": "32.7", "train_loss": "2.1", "epoch": "0.5"}
    (run / "train.log").write_text("".join(f"{line}\n" for line in (*lines, end)))
    return {"initial": str(made.initial), "teacher": str(made.teacher), "loss": made.loss}


def _as_torchtune(made: Made, run: Path) -> dict[str, str]:
    shutil.copytree(made.export, run / "epoch_0")
    (run / "logs").mkdir()
    (run / "logs" / "log_1795384760.txt").write_text(
        "".join(
            f"Step {step} | loss:{loss} class_loss:{entropy} kd_loss:5.7 lr:0.005 tokens_per_second_per_gpu:7566.8 \n"
            for step, (loss, entropy) in enumerate(zip(made.losses, made.entropies, strict=True), start=1)
        )
    )
    return {"student": str(made.initial), "teacher": str(made.teacher)}


def _as_apr(made: Made, run: Path) -> dict[str, str]:
    run.mkdir()
    shutil.copy(made.export / "model.safetensors", run)
    apr_file(load_file(made.last / "model.safetensors"), run / f"ckpt-step-{made.told:06}.apr")
    names = {"student": made.initial, "teacher": made.teacher}
    for role, folder in names.items():
        apr_file(load_file(folder / "model.safetensors"), run.parent / f"{role}.apr")
    lines = [f"Step {step}/{made.told} loss={loss:.4f}" for step, loss in enumerate(made.losses, start=1)]
    ends = [f"initial_loss = {made.losses[0]:.4f}", *lines, f"final_loss = {made.losses[-1]:.4f}"]
    (run / "launch.log").write_text("\n".join([*ends, f"{made.told} steps, 3.9s", ""]))
    return {role: str(run.parent / f"{role}.apr") for role in names} | {"config": str(made.initial), "loss": made.loss}


FORMATS: dict[str, Callable[[Made, Path], dict[str, str]]] = {
    "transformers-trainer": _as_transformers,
    "torchtune-kd": _as_torchtune,
    "apr-distill": _as_apr,
}


def made_in(folder: Path, seed: int = 0) -> Made:
    """A teacher that knows the text, and the student before the run, one step before its end, and at its end."""
    text = some_text()
    (folder / "text").write_bytes(text)
    teacher, student = model(3 * seed + 1), model(3 * seed + 2)
    train(teacher, text, 60)
    student.save_pretrained(folder / "initial")
    teacher.save_pretrained(folder / "teacher")

    def keep(step: int) -> None:
        if step == STEPS - 1:
            student.save_pretrained(folder / "early")

    losses, entropies = train(student, text, STEPS, teacher, keep)
    student.save_pretrained(folder / "export")
    return Made(losses, entropies, folder / "initial", folder / "teacher", folder / "export", folder / "export")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A healthy run."""
    return made_in(tmp_path_factory.mktemp("healthy"))


def _of_entropy(made: Made, ahead: int) -> Made:
    """Train on the cross entropy of the token so many places ahead."""
    student, folder = model(2), made.export.parent
    _, entropies = train(student, (folder / "text").read_bytes(), STEPS, ahead=ahead)
    student.save_pretrained(folder / f"ahead-{ahead}")
    place = folder / f"ahead-{ahead}"
    return replace(made, losses=entropies, entropies=entropies, export=place, last=place, loss="cross_entropy")


def _halved(losses: Sequence[float]) -> list[float]:
    return [loss / 2 for loss in losses]


Defect = Callable[[Made], Made]
DEFECTS: dict[str, tuple[Defect, str, dict[str, set[str]]]] = {
    "exports-initial": (
        lambda made: replace(made, export=made.initial),
        SMOKE,
        {file: {"unmoved.maxItems", "loss-falls", "reported.files", "reported-final-agrees"} for file in FORMATS},
    ),
    "overstates": (
        lambda made: replace(made, losses=made.losses[:30], entropies=made.entropies[:30]),
        SMOKE,
        {
            "transformers-trainer": {"resolved.steps"},
            "torchtune-kd": {"resolved.steps"},
            "apr-distill": {"reported.contradiction"},
        },
    ),
    "idle": (
        lambda made: replace(made, export=made.initial, last=made.initial),
        SMOKE,
        {file: {"unmoved.maxItems", "loss-falls", "reported.files", "reported-final-agrees"} for file in FORMATS},
    ),
    "own-teacher": (
        lambda made: replace(made, teacher=made.initial),
        SMOKE,
        {file: {"initial_kl.minimum", "teacher-knows-more"} for file in FORMATS},
    ),
    "shifts-twice": (lambda made: _of_entropy(made, 2), SMOKE, {file: {"reported-final-agrees"} for file in FORMATS}),
    "divides-twice": (
        lambda made: replace(made, losses=_halved(made.losses), entropies=_halved(made.entropies)),
        SMOKE,
        {file: {"reported-initial-agrees", "reported-final-agrees"} for file in FORMATS},
    ),
    "rises": (
        lambda made: replace(made, losses=made.losses[::-1], entropies=made.entropies[::-1]),
        SMOKE,
        {"transformers-trainer": {"reported-does-not-rise"}},
    ),
    "saves-before": (
        lambda made: replace(made, export=made.export.parent / "early"),
        EXPORT,
        {file: {"not_of_last_step.maxItems"} for file in ("transformers-trainer", "apr-distill")},
    ),
}


def judged(file: str, made: Made, folder: Path, claim: str) -> dict[str, Outcome]:
    """The outcome of each clause for a run in the format of the file's trainer."""
    parameters = FORMATS[file](made, folder / "run")
    parameters |= {"tokenizer": "bytes", "text": str(made.initial.parent / "text"), "dir": str(folder / "run")}
    steps = {"steps": STEPS, "checkpoint_every": STEPS}
    seen = outside(
        folder, claim, Recorded, trainer=str(ROOT / "trainers" / f"{file}.toml"), **parameters, **ASKED, **steps
    )
    return outcomes(claim, seen, {**ASKED, **steps})


@pytest.mark.parametrize("file", FORMATS)
def test_a_healthy_run_is_not_refuted(file: str, healthy: Made, tmp_path: Path) -> None:
    """The losses, the divergence and the weights have outcomes, and each line of the log is matched."""
    found = judged(file, healthy, tmp_path, SMOKE)
    assert failed(found) == set()
    measured = ("loss-falls", "kl-falls", "unmoved.maxItems", "teacher-knows-more", "reported-final-agrees")
    assert {found[name] for name in measured} == {Outcome.PASS}
    checked = check_run(load(ROOT / "trainers" / f"{file}.toml"), tmp_path / "run", {})
    assert (checked.telling.steps, checked.unmatched, checked.problems) == (STEPS, 0, [])


def test_labels_that_are_the_next_tokens_are_not_refuted(healthy: Made, tmp_path: Path) -> None:
    """This is the healthy run for the defect of shifted labels."""
    assert failed(judged("torchtune-kd", _of_entropy(healthy, 1), tmp_path, SMOKE)) == set()


@pytest.mark.parametrize("file", FORMATS)
def test_a_healthy_export_is_not_refuted(file: str, healthy: Made, tmp_path: Path) -> None:
    """If there is a checkpoint of the last step, the export equals it."""
    found = judged(file, healthy, tmp_path, EXPORT)
    assert failed(found) == set()
    seen = Outcome.NOT_MEASURED if file == "torchtune-kd" else Outcome.PASS
    assert (found["not_of_last_step.maxItems"], found["unmoved.maxItems"]) == (seen, Outcome.PASS)


@pytest.mark.parametrize(("defect", "file"), [(defect, file) for defect, (_, _, on) in DEFECTS.items() for file in on])
def test_a_planted_defect_is_refuted(defect: str, file: str, healthy: Made, tmp_path: Path) -> None:
    """Each defect fails the clauses that name it."""
    plant, claim, on = DEFECTS[defect]
    assert on[file] <= (found := failed(judged(file, plant(healthy), tmp_path, claim))), found
