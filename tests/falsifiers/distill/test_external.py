"""External trainers against the distillation claims, from the command line to the verdict."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest

from falsifiers.distill.external import Recorded
from tests.falsifiers.distill.outside import (
    BIGRAMS,
    EXPORT,
    MAX_STEPS,
    PERIOD,
    SMOKE,
    Seen,
    bundle,
    clauses,
    historical_run,
    named,
    outside,
    record,
    run,
    small_project,
    verified,
)
from tests.tools.trainer.trainers import BIGRAMS_FILE, ROOT, changed_trainer

APR = "trainers/apr-distill.toml"
NO_TRAINED_TOKENIZER = ("-P", "tokenizer=bytes")
"""The full profile's tokenizer takes ten seconds to train."""


def test_the_run_of_25_hours_is_caught_before_anybody_publishes_it(tmp_path: Path) -> None:
    """The log is good, the file is valid, and the metadata are true, but it has no tensor:

    FAIL, exit 1, without a GPU.
    """
    place = historical_run(tmp_path)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    recorded = ["--subject", f"recorded:{APR}", "-P", f"dir={place}", "-P", "steps=50000"]
    status, said = run(tmp_path, EXPORT, *recorded, *NO_TRAINED_TOKENIZER, mutants=True)
    assert status == 1, said
    assert "tensors_found.minimum" in said
    outcomes = clauses(tmp_path)
    refuted = {name for name, outcome in outcomes.items() if outcome == "FAIL"}
    assert refuted == {"tensors_found.minimum", "metadata_missing.maxItems"}  # it names no architecture
    assert outcomes["readable.const"] == outcomes["metadata_untrue.maxItems"] == "PASS"
    assert outcomes["resolved.steps"] == outcomes["resolved.device"] == "NOT_MEASURED"  # only the log says so
    assert outcomes["steps_executed.minimum"] == "NOT_MEASURED"  # the log has every fiftieth step
    sealed = record(tmp_path)
    assert (sealed["profile"], sealed["requested"]["device"]) == ("full", "cuda")
    assert (sealed["proven"], sealed["overrides"]) == (False, {})
    assert sealed["subject_parameters"]["dir"] == str(place)
    assert "trainers/apr-distill.toml" in sealed["sources"]
    assert f"judging {place / 'model.safetensors'} sha256" in (bundle(tmp_path) / "trials.log").read_text()
    assert verified(tmp_path)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def recorded(place: Path, claim: str, folder: Path, **options: Any) -> Seen:
    """Run a falsifier on a finished run of apr distill."""
    parameters = {"trainer": str(ROOT / "trainers" / "apr-distill.toml"), "dir": str(place), **options}
    return outside(folder, claim, Recorded, **parameters)


def test_a_run_without_a_log_is_judged_by_its_files(tmp_path: Path) -> None:
    """The run is refuted by its files. Measurements that need a log are not invented."""
    place = historical_run(tmp_path)
    (place / "launch.log").unlink()
    seen = recorded(place, EXPORT, tmp_path)
    assert (seen.measurements["tensors_found"], seen.measurements["file_bytes"]) == (0, 200)
    assert (seen.resolved, "steps_executed" in seen.measurements) == ({}, False)
    assert (seen.ending, "steps_executed" in seen.unseen) == ("", True)


def test_a_recorded_run_of_whole_epochs_is_refuted_by_its_log(tmp_path: Path) -> None:
    """Fifty steps were requested, and the log says 62. The log has the losses, but not their steps."""
    place = tmp_path / "run"
    place.mkdir()
    (place / "phase-3.log").write_bytes(b"initial_loss = 7.6746\nfinal_loss   = 7.2036\n62 steps, 122.7s\n")
    seen = recorded(place, SMOKE, tmp_path)
    assert seen.resolved == {"steps": 62}
    assert (seen.measurements["steps_reported"], seen.measurements["reported_initial_loss"]) == (62, 7.6746)
    assert not {"steps_executed", "reported_losses", "initial_loss"} & seen.measurements.keys()


def test_a_recorded_run_that_ran_out_of_memory(tmp_path: Path) -> None:
    """The log says that memory ran out, so the run did not complete, by its own fault."""
    place = tmp_path / "run"
    place.mkdir()
    (place / "gb10.log").write_bytes(
        b"[CUDA] Pre-warmed 27 forward kernels\nBlock 0 upload: CUDA_ERROR_OUT_OF_MEMORY\n"
    )
    assert recorded(place, SMOKE, tmp_path).ending == "SubjectFault: OutOfMemory"


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    """A mistyped path to another folder refutes nothing.

    A folder with a log but without the export refutes the claim.
    """
    place = tmp_path / "run"
    (place / "sub").mkdir(parents=True)
    (place / "README.md").write_text("nothing of a run")
    seen = recorded(place, EXPORT, tmp_path)
    assert seen.ending == "NotMeasured"
    assert all(sought in seen.reason for sought in (str(place), "launch.log", "model.safetensors"))
    assert "readable" not in seen.measurements
    (place / "launch.log").write_bytes(b"62 steps, 122.7s\n")
    assert recorded(place, EXPORT, tmp_path).measurements["readable"] is False


def test_a_run_that_is_over_is_not_made_again(tmp_path: Path) -> None:
    """Clauses that need another run are NOT_MEASURED, and no file of the run is removed."""
    place = historical_run(tmp_path)
    seen = recorded(place, PERIOD, tmp_path, checkpoint_every=5000)
    assert seen.measurements["missing"][0] == "N=5000: step 5000"
    assert seen.ending == "NotObserved"
    assert (place / "model.safetensors").exists()


def test_a_foreign_trainer_is_proven_to_count_its_steps(folder: Path) -> None:
    """With a checkpoint of every step, every clause can be judged from outside. The mutants are killed too."""
    options = ["--profile", "reduced", "--subject", f"command:{BIGRAMS}", *named(folder), "-P", "checkpoint_every=1"]
    project = small_project(folder, {MAX_STEPS: {"one-step-more", "zero-is-nothing"}})
    status, said = run(folder, MAX_STEPS, *options, mutants=True, project=project)
    assert status == 0, said
    sealed = record(folder)
    assert (sealed["verdict"], sealed["proven"], sealed["resolved"]["steps"]) == ("PASS", True, 50)
    assert [mutant["fate"] for mutant in sealed["mutants"]] == ["killed", "killed"]
    assert sealed["overrides"] == {"checkpoint_every": 1}
    assert sealed["subject"] == "falsifiers.distill.external:Command"
    assert {BIGRAMS, "tests/tools/trainer/train_bigrams.py"} <= sealed["sources"].keys()
    assert "sha256" in (bundle(folder) / "trials.log").read_text()
    assert len((bundle(folder) / "metrics.csv").read_text().splitlines()) == 51
    assert verified(folder)


def test_steps_that_move_nothing_and_steps_too_many_are_seen(folder: Path) -> None:
    """The checkpoints show steps that move nothing, and the output shows steps too many."""
    few = {"steps": 4, "requests": [], "refused": [0]}
    idle = outside(folder, MAX_STEPS, checkpoint_every=1, fail="idle", **few)
    assert (idle.measurements["idle"], idle.measurements["surplus"], idle.measurements["accepted"]) == ([2], [0], [])
    shutil.rmtree(folder / "workspace")
    epochs = outside(folder, MAX_STEPS, checkpoint_every=0, fail="whole-epochs", **few)
    assert (epochs.measurements["surplus"], epochs.resolved["steps"], "idle" in epochs.measurements) == (
        [12],
        16,
        False,
    )
    assert (epochs.ending, set(epochs.unseen)) == ("", {"idle"})


def test_an_export_of_another_format_is_read(folder: Path) -> None:
    """Every tensor is found, has moved and equals the last checkpoint's. Unobserved values are NOT_MEASURED."""
    seen = outside(folder, EXPORT, checkpoint_every=1, steps=5)
    expected = {"readable": True, "tensors_found": 2, "missing": [], "different": [], "unmoved": []}
    assert {name: seen.measurements[name] for name in expected} == expected
    assert (seen.measurements["weight_changes"], seen.resolved) == (
        5,
        {"device": "cpu", "dtype": "float32", "steps": 5, "contradiction": "", "unlike_files": ""},
    )
    assert not {"logits_difference", "metadata_missing"} & seen.measurements.keys()


@pytest.mark.parametrize(
    ("fail", "ending", "named"),
    [
        ("crash", "SubjectFault: CommandFailed", ("status 1", "step 2", "RuntimeError: something broke")),
        ("out-of-memory", "SubjectFault: OutOfMemory", ("status 1", "step 2")),
        ("killed", "NotMeasured", ("SIGKILL", "step 2")),
    ],
)
def test_how_a_trainer_ends_is_its_own_fault_or_not(
    folder: Path, fail: str, ending: str, named: tuple[str, ...]
) -> None:
    """A crash and an exhausted GPU are the trainer's fault. A kill by the kernel is not."""
    seen = outside(folder, EXPORT, fail=fail, steps=5)
    assert seen.ending == ending
    assert all(name in seen.reason for name in named)


def test_a_full_disk_is_not_its_fault(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is not the trainer's fault, whatever it prints."""
    full = shutil.disk_usage(folder)._replace(free=4096)
    monkeypatch.setattr("harness.tools.trainer.command_line.shutil.disk_usage", lambda place: full)
    assert outside(folder, EXPORT, fail="crash", steps=5).ending == "NotMeasured"


def test_an_export_that_is_not_there(folder: Path) -> None:
    """The run has exit status 0 and no export, so it is refuted."""
    assert outside(folder, EXPORT, fail="no-export", steps=3).measurements["readable"] is False


def test_a_missing_binary_is_not_measured(folder: Path) -> None:
    """This machine lacks the program, so the trial is NOT_MEASURED."""
    trainer = str(ROOT / "trainers" / "apr-distill.toml")
    seen = outside(folder, EXPORT, trainer=trainer, apr="no-such-apr")
    assert (seen.ending, "no-such-apr" in seen.reason) == ("NotMeasured", True)


def test_a_flood_of_output_is_bounded(folder: Path) -> None:
    """The trainer prints twenty megabytes. The log keeps their beginning and their end."""
    options = ["--profile", "reduced", "--subject", f"command:{BIGRAMS}", *named(folder)]
    status, output = run(folder, EXPORT, *options, "-P", "fail=flood", "-P", "steps=3")
    assert status == 3, output
    assert (bundle(folder) / "trials.log").stat().st_size < 2 << 20


def test_a_trainer_that_hangs_ends_with_its_trial(folder: Path) -> None:
    """The trainer ends after the seconds that its file allows, and no process of it is left."""
    with changed_trainer(BIGRAMS_FILE, "[command]\n", "[command]\nseconds = 8\n") as place:
        options = ["--profile", "reduced", "--subject", f"command:{place}", *named(folder)]
        status, output = run(folder, EXPORT, *options, "-P", "fail=hang")
    assert (status, clauses(folder)["subject.completes"]) == (1, "FAIL"), output
    left = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in str(process.info["cmdline"])
    ]
    assert left == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--subject", "Command:x.toml"], "did you mean command:x.toml?"),
        (["--subject", "trainers/apr-distill.toml"], "command:trainers/apr-distill.toml runs that trainer, recorded:"),
        (["--subject", "command:nowhere.toml"], "name the trainer's TOML file"),
        (["--subject", "command:/etc/hostname"], "outside the project"),
        (["--subject", "command:/nowhere/x.toml"], "name the trainer's TOML file"),
        (["--subject", f"recorded:{APR}"], "-P dir=RUN"),
        (["--subject", f"recorded:{APR}", "-P", "dir=/nowhere"], "there is no directory /nowhere"),
        (["--subject", f"recorded:{APR}", "-P", "dir=/tmp", "-P", "device=tpu"], "device is cpu or cuda"),
        (["--subject", f"command:{APR}"], "a value for student and teacher: -P student=… -P teacher=…"),
        (["--subject", f"command:{BIGRAMS}", "-P", "techer=x"], "did you mean teacher?"),
        (["--subject", f"command:{APR}", "-P", "epochs=many"], "epochs is a number"),
        (["--subject", f"command:{APR}", "-P", "dir=/tmp"], f"neither {EXPORT} nor {APR} has a parameter 'dir'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(tmp_path: Path, options: list[str], said: str) -> None:
    """The request is refused with exit status 2, and there is no bundle."""
    status, output = run(tmp_path, EXPORT, *options)
    assert (status, said in " ".join(output.split())) == (2, True), output
    assert not list(tmp_path.rglob("record.json"))


def test_a_claim_without_an_adapter_is_refused(tmp_path: Path) -> None:
    """The claim about the chosen allocator takes no external trainer."""
    status, output = run(tmp_path, "F-ALLOC-UNIFIED-001", "--subject", f"recorded:{APR}", "-P", "dir=/tmp")
    assert status == 2
    said = " ".join(output.split())
    assert "F-ALLOC-UNIFIED-001 takes no recorded as its subject; these claims take one: " in said
    named = said.partition("take one: ")[2].split(", ")
    assert {EXPORT, "F-APR-V2-LAYOUT-001", "F-BLACKWELL-ARCHIVE-001"} <= {name.rstrip(".") for name in named}
    assert "F-BLACKWELL-CUBLAS-001" not in said
    assert "module" not in said
