"""The reference subject in a few real steps, and both falsifiers on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from falsifiers.distill import batch, embedding, export, kl_moves, learning_rate, smoke, teacher_divergence
from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.config import ARCHITECTURES, Recipe, new_model
from falsifiers.distill.reference.export import checkpoint_path
from harness import NotMeasured
from tests.falsifiers.distill.trials import CONTRACTS, QUICK, a_mutant, a_setting, a_trial

_KEYS = {"name", "architecture", "teacher_model", "temperature", "alpha", "epoch", "step", "final_loss"}


def declared(claim: str) -> frozenset[str]:
    """The measurements that the claim's contract declares."""
    return frozenset(json.loads((CONTRACTS / claim / "contract.json").read_text())["observation"]["properties"])


def test_checkpoints_and_export_say_what_they_are(tmp_path: Path) -> None:
    """The directory is made, every second step has a checkpoint, and the metadata are strings."""
    run = Distillation(a_setting(tmp_path)).distill(lambda step, **values: None)
    assert [path.name for path in run.checkpoints] == ["ckpt-step-000002.safetensors"]
    assert run.steps == len(run.losses) == 3
    with safe_open(run.export, framework="pt") as file:
        metadata = file.metadata()
    assert metadata.keys() == _KEYS
    assert metadata["step"] == "3"
    assert float(metadata["final_loss"]) == run.losses[-1]
    assert {path.name for path in run.export.parent.iterdir()} == {run.export.name, "ckpt-step-000002.safetensors"}


def test_names_of_checkpoints_widen_past_a_million() -> None:
    """A name has at least six digits, and more if needed."""
    assert checkpoint_path(Path(), 7).name == "ckpt-step-000007.safetensors"
    assert checkpoint_path(Path(), 1_000_000).name == "ckpt-step-1000000.safetensors"


def test_a_seed_gives_the_same_run_again(tmp_path: Path) -> None:
    """Losses are equal to the last bit.

    Another seed gives other losses. The teacher is the same, and is trained once.
    """
    first, again, other = (Distillation(a_setting(tmp_path, seed)) for seed in (1, 1, 2))
    losses = [subject.distill(lambda step, **values: None).losses for subject in (first, again, other)]
    assert losses[0] == losses[1] != losses[2]
    assert len(list((tmp_path / "cache").glob("teacher-*.safetensors"))) == 1
    tokens = torch.arange(16).reshape(1, 16)
    assert torch.equal(first.teacher_logits(tokens), other.teacher_logits(tokens))


def test_loaded_weights_stand_in_for_the_live_ones_whole_or_not_at_all(tmp_path: Path) -> None:
    """The live weights give the live logits, and other weights give others. A set with a missing weight is refused."""
    subject = Distillation(a_setting(tmp_path))
    tokens = torch.arange(16).reshape(1, 16)
    live = {name: weight.detach().clone() for name, weight in subject.student_weights().items()}
    assert torch.equal(subject.student_logits(tokens), subject.student_logits(tokens, live))
    changed = {name: weight + 0.1 for name, weight in live.items()}
    assert not torch.equal(subject.student_logits(tokens), subject.student_logits(tokens, changed))
    del live["model.norm.weight"]
    with pytest.raises(KeyError, match=r"model\.norm\.weight"):
        subject.student_logits(tokens, live)


@pytest.mark.parametrize("bad", [{"steps": 0}, {"model": "gpt-5"}, {"dtype": "float33"}, {"dtype": "int64"}])
def test_a_recipe_that_makes_no_sense_is_refused(tmp_path: Path, bad: dict[str, object]) -> None:
    """Zero steps are an error, not an empty run (#1911)."""
    with pytest.raises(ValueError, match=r"steps|known|dtype"):
        Distillation(a_setting(tmp_path, **bad)).distill(lambda step, **values: None)


def test_the_half_billion_architecture_is_qwen2s(tmp_path: Path) -> None:
    """The model has 494,032,768 parameters with the head tied to the embedding. No memory is allocated for them."""
    recipe = Recipe.of({**QUICK, "model": "qwen2-0.5b"})
    model = new_model(recipe, 0, torch.device("meta"))
    assert sum(weight.numel() for weight in model.parameters()) == 494_032_768
    assert len(dict(model.named_parameters())) == 290
    assert "rope_parameters" in ARCHITECTURES["qwen2-0.5b"], "building a model must not change the table"


@pytest.mark.parametrize(
    ("claim", "falsify"),
    [
        ("F-DISTILL-SMOKE-001", smoke.falsify),
        ("F-DISTILL-CKPT-EXPORT-001", export.falsify),
        ("F-DISTILL-TEACHER-DIV-001", teacher_divergence.falsify),
        ("F-DISTILL-KL-MOVES-001", kl_moves.falsify),
        ("F-DISTILL-LR-001", learning_rate.falsify),
        ("F-DISTILL-EMBED-001", embedding.falsify),
        ("F-DISTILL-BATCH-001", batch.falsify),
    ],
)
def test_a_falsifier_measures_what_its_contract_declares(tmp_path: Path, claim: str, falsify) -> None:  # type: ignore[no-untyped-def]
    """The falsifier measures everything that is declared and nothing else, and reads the resolved values back."""
    setting = a_setting(tmp_path, embedding="model.embed_tokens.weight", required_metadata=["step", "alpha"])
    trial, recorded = a_trial(setting, Distillation, declared(claim))
    falsify(trial)
    assert recorded.measurements.keys() == declared(claim)
    assert recorded.resolved == {"device": "cpu", "dtype": "float32", "steps": 3}
    assert recorded.steps == [1, 2, 3]


def test_an_embedding_of_another_name_is_asked_for(tmp_path: Path) -> None:
    """The names of its parameters are not a fault of the trainer."""
    trial, _ = a_trial(a_setting(tmp_path, embedding="wte"), Distillation, declared("F-DISTILL-EMBED-001"))
    with pytest.raises(NotMeasured, match=r"wte.*-P embedding=NAME.*model\."):
        embedding.falsify(trial)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_cpu_fallback_is_read_back_as_what_it_is(tmp_path: Path) -> None:
    """The weights are on the CPU, although the logits come from the GPU."""
    setting = a_setting(tmp_path)
    on_gpu = type(setting)(setting.parameters, "cuda:0", 0, setting.workspace, setting.cache)
    with a_mutant("F-DISTILL-SMOKE-001", "silent-cpu-fallback") as (subject, falsify):
        trial, recorded = a_trial(on_gpu, subject, declared("F-DISTILL-SMOKE-001"))
        falsify(trial)
    assert recorded.resolved["device"] == "cpu"


def test_importing_touches_no_gpu_and_starts_no_threads() -> None:
    """The process that imports these modules forks later, which neither a CUDA context nor threads survive."""
    script = (
        "import os, torch, transformers, tokenizers, numpy\n"
        "from transformers import Qwen2ForCausalLM\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "import falsifiers.distill.smoke, falsifiers.distill.export, falsifiers.distill.mutants\n"
        "print(len(os.listdir('/proc/self/task')) - before, torch.cuda.is_initialized())\n"
    )
    root = CONTRACTS.parents[1]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.split() == ["0", "False"]
