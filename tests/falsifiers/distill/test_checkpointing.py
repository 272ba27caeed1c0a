"""Checkpoints of the reference: whole or absent, complete, and a failing save does not end the run."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from falsifiers.distill.measuring.weight_comparison import inspect_export, snapshot
from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.checkpointing import Checkpointer, HostCopy
from falsifiers.distill.reference.config import Recipe
from falsifiers.distill.reference.export import checkpoint_path, checkpoint_steps, save_weights
from falsifiers.distill.reference.state import read_state
from tests.falsifiers.distill.trials import QUICK, a_setting

WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)}


def silent(step: int, **values: float) -> None:
    """Do nothing with an event."""


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    """Names in the order of texts are wrong from a million on. Unfinished files and foreign ones are no checkpoints."""
    for step in (1_000_000, 999_999, 7):
        checkpoint_path(tmp_path, step).touch()
    (tmp_path / "ckpt-step-000009.safetensors.part").touch()
    (tmp_path / "ckpt-step-8.safetensors").touch()
    assert checkpoint_steps(tmp_path) == [7, 999_999, 1_000_000]
    assert checkpoint_steps(tmp_path / "missing") == []


def test_a_file_is_flushed_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is flushed, then the file is renamed, then the directory is flushed, in case power fails."""
    done = []
    fsync, replace = os.fsync, Path.replace

    def flushing(descriptor: int) -> None:
        done.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def renaming(self: Path, target: Path) -> Path:
        done.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(Path, "replace", renaming)
    save_weights(WEIGHTS, tmp_path / "folder" / "w.safetensors", {})
    assert done == ["fsync w.safetensors", "rename", "fsync folder"]


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the system's, whichever thread raised it."""
    path = tmp_path / "w.safetensors"
    save_weights(WEIGHTS, path, {"step": "1"})
    (tmp_path / ".unfinished").mkdir()
    (tmp_path / ".unfinished" / "of-a-crash").touch()

    def full(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="Input/output"):
        save_weights(WEIGHTS, path, {"step": "2"})
    assert read_state(path).metadata["step"] == "1"
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]


def test_a_copy_is_of_its_moment() -> None:
    """Later training does not change the copy. Its memory is used again."""
    live = {"a": torch.zeros(3)}
    copy = HostCopy()
    copy.take(live)
    place = copy.tensors()["a"].data_ptr()
    live["a"] += 1
    assert copy.tensors()["a"].tolist() == [0.0, 0.0, 0.0]
    copy.take(live)
    assert copy.tensors()["a"].tolist() == [1.0, 1.0, 1.0]
    assert copy.tensors()["a"].data_ptr() == place


def test_a_save_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second save waits for the first. Each save has the weights of its own moment."""
    disk_is_ready = threading.Event()
    fsync = os.fsync

    def slow(descriptor: int) -> None:
        assert disk_is_ready.wait(30)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    live = {"a": torch.zeros(3)}
    with Checkpointer(tmp_path, 1) as checkpointer:
        checkpointer.save(1, live, {})
        live["a"] += 1
        assert checkpointer.saved == []
        disk_is_ready.set()
        checkpointer.save(2, live, {})
    assert [read_state(path).tensors["a"][0].item() for path in checkpointer.saved] == [0.0, 1.0]


def test_failures_are_logged_counted_and_survived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While a file stands in place of the directory, saves fail. After its removal, saving works."""
    directory = tmp_path / "out"
    directory.write_text("in the way")
    with caplog.at_level(logging.ERROR), Checkpointer(directory, 1) as checkpointer:
        checkpointer.save(1, WEIGHTS, {})
        checkpointer.save(2, WEIGHTS, {})
        checkpointer.settle()
        directory.unlink()
        checkpointer.save(3, WEIGHTS, {})
    assert checkpointer.failures == 2
    assert [path.name for path in checkpointer.saved] == ["ckpt-step-000003.safetensors"]
    assert [record.getMessage().split()[1] for record in caplog.records] == [
        "ckpt-step-000001.safetensors",
        "ckpt-step-000002.safetensors",
    ]


def test_a_mistake_in_the_program_is_not_taken_for_a_failing_disk(tmp_path: Path) -> None:
    """An exception of the writing thread is raised at the end."""
    with pytest.raises(TypeError), Checkpointer(tmp_path, 1) as checkpointer:
        checkpointer.save(1, WEIGHTS, {"step": 1})  # type: ignore[dict-item]
    assert checkpointer.failures == 0


def test_the_default_is_the_specs_and_nonsense_is_refused(tmp_path: Path) -> None:
    """The default is 5000 (PR #1856), 0 turns checkpoints off, and a negative distance is an error."""
    without = {name: value for name, value in QUICK.items() if name != "checkpoint_every"}
    assert Recipe.of(without).checkpoint_every == 5000
    assert not any(Checkpointer(tmp_path, 0).due(step) for step in range(10))
    with pytest.raises(ValueError, match="-1"):
        Checkpointer(tmp_path, -1)


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    """Losses and weights are equal to the last bit, with dropout that draws random numbers in every step."""
    parameters = {"steps": 7, "checkpoint_every": 3, "dropout": 0.2}
    whole = Distillation(a_setting(tmp_path / "whole", **parameters))
    losses = whole.distill(silent).losses
    first = Distillation(a_setting(tmp_path / "parts", **{**parameters, "steps": 4}))
    assert first.distill(silent).losses == losses[:4]
    second = Distillation(a_setting(tmp_path / "parts", **parameters))
    assert second.resume() == 3
    run = second.distill(silent)
    assert run.losses == losses[3:]
    assert run.steps == 4
    seen = inspect_export(run.export, whole.student_weights(), snapshot(whole.student_weights()))
    assert (seen.missing, seen.unexpected, seen.different) == ([], [], [])


def test_there_may_be_nothing_to_resume(tmp_path: Path) -> None:
    """Without a checkpoint, a run starts at its beginning."""
    subject = Distillation(a_setting(tmp_path))
    assert subject.resume() == 0
    assert subject.distill(silent).steps == 3


def test_a_checkpoint_is_also_a_model_and_says_what_it_is(tmp_path: Path) -> None:
    """The weights have their own names. The rest of the state has names that no parameter has."""
    run = Distillation(a_setting(tmp_path)).distill(silent)
    (checkpoint,) = run.checkpoints
    other = Distillation(a_setting(tmp_path, seed=9))
    other.load(checkpoint)
    with safe_open(checkpoint, framework="pt") as file:
        assert file.metadata()["step"] == "2"
        assert {name for name in file.keys() if "/" not in name} == other.student_weights().keys()  # noqa: SIM118
        for name, weight in other.student_weights().items():
            assert torch.equal(file.get_tensor(name), weight)


@pytest.mark.parametrize("change", ["shape", "dtype", "name"])
def test_another_models_weights_are_refused_whole(tmp_path: Path, change: str) -> None:
    """No weight is cut, cast or left at its first value (#1877), and the live weights stay as they were."""
    subject = Distillation(a_setting(tmp_path))
    weights = snapshot(subject.student_weights())
    name = "model.embed_tokens.weight"
    altered = {"shape": weights[name][:-8], "dtype": weights[name].half(), "name": weights[name]}[change]
    others = {key: value for key, value in weights.items() if key != name}
    path = save_weights({**others, name + "_" * (change == "name"): altered}, tmp_path / "w.safetensors", {})
    with pytest.raises(ValueError, match="embed_tokens"):
        subject.load(path)
    assert all(torch.equal(weights[key], now) for key, now in subject.student_weights().items())


def test_an_export_is_no_state_to_resume_from(tmp_path: Path) -> None:
    """An export is refused, because resuming from it would need a fresh optimizer."""
    subject = Distillation(a_setting(tmp_path))
    save_weights(subject.student_weights(), checkpoint_path(subject.directory, 2), {"step": "2"})
    with pytest.raises(ValueError, match="no state of a training"):
        subject.resume()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_copy_from_the_gpu_is_of_its_moment() -> None:
    """Changes launched after `protect` wait for the copy, however long the queue before it is."""
    live = {"a": torch.zeros(50_000_000, device="cuda")}
    copy = HostCopy()
    for value in range(1, 6):
        copy.take(live)
        copy.protect()
        live["a"] += 1
        assert copy.tensors()["a"].unique().tolist() == [value - 1.0]
