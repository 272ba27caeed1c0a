"""Finished runs whose TOML file names models, a tokenizer and a text. The falsifier loads and evaluates the models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from falsifiers.distill.external import Recorded
from harness.base.vocabulary import Outcome
from tests.falsifiers.distill.outside import EXPORT, SMOKE, Seen, failed, outcomes, outside
from tests.falsifiers.distill.small_distillation import STEPS, apr_file, model, train
from tests.tools.trainer.trainers import ROOT

FILE = """
name = "a finished run"
[parameters]
root = ""
[command]
line = ["true"]
[log]
loss = "distillation"
files = ["*.log"]
[[log.line]]
event = "step"
json = {step = "step", loss = "loss"}
[[log.line]]
event = "summary"
json = {steps = "made"}
[files]
export = "{output}/export"
initial = "{root}/initial"
[models]
teacher = "{root}/teacher"
tokenizer = "bytes"
text = "{root}/text"
"""
ASKED = {"batch": 4, "sequence": 32, "held_out_batches": 2}
MEASURED = ("loss-falls", "kl-falls", "unmoved.maxItems", "teacher-knows-more", "initial_kl.minimum", "reported.files")
"""The clauses of SMOKE that have an outcome if the models are named."""


def _told(losses: Sequence[float], made: int | None = None) -> str:
    lines = [{"step": step, "loss": loss} for step, loss in enumerate(losses, start=1)]
    return "".join(json.dumps(line) + "\n" for line in (*lines, *([{"made": made}] if made else [])))


@pytest.fixture(scope="module")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A healthy run: a teacher that knows the text, the student before and after the run, and the log."""
    folder = tmp_path_factory.mktemp("distilled")
    text = b"".join(path.read_bytes() for path in sorted(ROOT.glob("harness/e*/*.py")))[:60_000]
    (folder / "text").write_bytes(text)
    teacher, student = model(1), model(2)
    train(teacher, text, 60)
    teacher.save_pretrained(folder / "teacher")
    student.save_pretrained(folder / "initial")
    losses, _ = train(student, text, STEPS, teacher)
    student.save_pretrained(folder / "run" / "export")
    (folder / "run" / "train.log").write_text(_told(losses, STEPS))
    (folder / "trainer.toml").write_text(FILE)
    return folder


@pytest.fixture
def folder(distilled: Path, tmp_path: Path) -> Path:
    """A copy of that run."""
    return shutil.copytree(distilled, tmp_path / "copy")


def _seen(folder: Path, claim: str = SMOKE, **changed: Any) -> Seen:
    parameters = {"trainer": str(folder / "trainer.toml"), "dir": str(folder / "run"), "root": str(folder)}
    return outside(folder, claim, Recorded, **parameters, **ASKED, **changed)


def _outcomes(folder: Path, claim: str = SMOKE) -> dict[str, Outcome]:
    return outcomes(claim, _seen(folder, claim), ASKED)


def _log(folder: Path, change: Callable[[list[float]], list[float]], made: int | None = None) -> None:
    path = folder / "run" / "train.log"
    losses = [line["loss"] for text in path.read_text().splitlines() if "loss" in (line := json.loads(text))]
    path.write_text(_told(change(losses), made))


def test_a_healthy_run_has_verdicts_on_its_losses(folder: Path) -> None:
    """Nothing is refuted. Clauses that only the trainer's process can show are NOT_MEASURED."""
    found = _outcomes(folder)
    assert failed(found) == set()
    measured = (*MEASURED, "reported-initial-agrees", "reported-final-agrees", "reported-does-not-rise")
    assert {name: found[name] for name in measured} == dict.fromkeys(measured, Outcome.PASS)
    hidden = ("teacher_drift.maximum", "final_foresight.maximum", "student_logits_error.maximum")
    assert {found[name] for name in hidden} == {Outcome.NOT_MEASURED}


def test_the_config_of_a_folder_is_its_own(folder: Path) -> None:
    """`config` of the TOML file is for models without their own, such as an export that is one file."""
    (folder / "trainer.toml").write_text(FILE.replace("[models]", '[models]\nconfig = "{root}/initial"'))
    (folder / "teacher" / "config.json").write_text('{"model_type": "nothing known"}')
    assert _outcomes(folder)["initial_kl.minimum"] is Outcome.NOT_MEASURED


def _apr(dtype: torch.dtype) -> Callable[[Path], None]:
    """Write the export as APR v2 in a dtype, and its config.json beside it."""

    def write(export: Path) -> None:
        apr_file(load_file(export / "model.safetensors"), export / "student.apr", dtype)
        (export / "model.safetensors").unlink()

    return write


def _torch_zip(export: Path) -> None:
    torch.save(load_file(export / "model.safetensors"), export / "pytorch_model.bin")
    (export / "model.safetensors").unlink()


def _two_parts(export: Path) -> None:
    tensors = load_file(export / "model.safetensors")
    (export / "model.safetensors").unlink()
    parts = {name: f"model-0000{1 + position % 2}-of-00002.safetensors" for position, name in enumerate(tensors)}
    for part in set(parts.values()):
        save_file({name: tensor for name, tensor in tensors.items() if parts[name] == part}, export / part)
    (export / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))


@pytest.mark.parametrize(
    "write",
    [_apr(torch.float32), _apr(torch.float16), _apr(torch.bfloat16), _torch_zip, _two_parts],
    ids=["apr-f32", "apr-f16", "apr-bf16", "torch-zip", "parts"],
)
def test_the_export_may_have_any_format(folder: Path, write: Callable[[Path], None]) -> None:
    """The export is evaluated, and compared with the student before the run."""
    write(folder / "run" / "export")
    found = _outcomes(folder)
    assert (failed(found), {found[name] for name in MEASURED}) == (set(), {Outcome.PASS})
    export = _outcomes(folder, EXPORT)
    assert failed(export) <= {"resolved.steps"}
    assert export["missing.maxItems"] is export["unmoved.maxItems"] is Outcome.PASS


def test_a_run_without_a_teacher(folder: Path) -> None:
    """The cross entropy has an outcome. Clauses that need a teacher are NOT_MEASURED."""
    text = FILE.replace('teacher = "{root}/teacher"\n', "").replace('"distillation"', '"cross_entropy"')
    (folder / "trainer.toml").write_text(text)
    found = _outcomes(folder)
    assert failed(found) == {"reported-final-agrees"}  # its lines have another loss, whose name begins alike
    assert found["loss-falls"] is Outcome.PASS
    assert found["initial_kl.minimum"] is Outcome.NOT_MEASURED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('tokenizer = "bytes"', 'tokenizer = "{root}/tokenizer.json"'),
        ('text = "{root}/text"', 'text = "{root}/no-text"'),
        ('text = "{root}/text"', 'text = "{root}/short"'),
        ('teacher = "{root}/teacher"', 'teacher = "{root}/run"'),
        ('initial = "{root}/initial"', 'initial = "{root}/run"'),
    ],
)
def test_what_cannot_be_loaded_is_not_measured(folder: Path, old: str, new: str) -> None:
    """A mistake in the TOML file refutes nothing."""
    large = Tokenizer(WordLevel({f"w{number}": number for number in range(300)}, unk_token="w0"))
    large.save(str(folder / "tokenizer.json"))
    (folder / "short").write_text("ten words")
    (folder / "trainer.toml").write_text(FILE.replace(old, new))
    found = _outcomes(folder)
    assert (failed(found), found["kl-falls"]) == (set(), Outcome.NOT_MEASURED)


@pytest.mark.parametrize(("named", "outcome"), [("embed_tokens", Outcome.PASS), ("k_proj", Outcome.FAIL)])
def test_tensors_that_a_run_leaves_as_they_are(folder: Path, named: str, outcome: Outcome) -> None:
    """For example beside adapters, the file names the tensors that do not train. All others must move."""
    weights = folder / "run" / "export" / "model.safetensors"
    first = load_file(folder / "initial" / "model.safetensors")
    last = {name: first[name] if "embed_tokens" in name else tensor for name, tensor in load_file(weights).items()}
    save_file(last, weights, {"format": "pt"})
    (folder / "trainer.toml").write_text(FILE.replace("[models]", f"frozen = '{named}'\n[models]"))
    found = _outcomes(folder), _outcomes(folder, EXPORT)
    assert [outcomes["unmoved.maxItems"] for outcomes in found] == [outcome] * 2


METADATA = ("metadata_missing.maxItems", "metadata_untrue.maxItems")


def _rewritten(folder: Path, metadata: dict[str, str] | None) -> None:
    path = folder / "run" / "export" / "model.safetensors"
    save_file(load_file(path), path, metadata)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_an_export_that_says_nothing_of_its_run(folder: Path, metadata: dict[str, str] | None) -> None:
    """The metadata of transformers count as none. If nothing is required, neither matters."""
    _rewritten(folder, metadata)
    found = _outcomes(folder, EXPORT)
    assert [found[name] for name in METADATA] == [Outcome.NOT_MEASURED] * 2
    free = outcomes(EXPORT, _seen(folder, EXPORT, required_metadata=[]), ASKED)
    assert [free[name] for name in METADATA] == [Outcome.PASS] * 2


def test_a_key_that_is_missing_is_said_once(folder: Path) -> None:
    """Only the clause on missing keys names it. Only the keys that the contract requires count."""
    _rewritten(folder, {"format": "pt", "alpha": "0.3", "temperature": "4.0", "step": "49"})
    seen = _seen(folder, EXPORT, required_metadata=["alpha", "epoch"])
    assert seen.measurements["metadata_missing"] == ["epoch"]
    assert seen.measurements["metadata_untrue"] == ["step"]


def test_a_loss_that_is_not_stated_is_not_compared(folder: Path) -> None:
    """A trainer may print a loss other than the claim's."""
    (folder / "trainer.toml").write_text(FILE.replace('loss = "distillation"\n', ""))
    _log(folder, lambda losses: [loss / 7 for loss in losses])
    found = _outcomes(folder)
    assert (failed(found), found["reported-final-agrees"]) == (set(), Outcome.NOT_MEASURED)
    assert np.isfinite(_seen(folder).measurements["final_loss"])
