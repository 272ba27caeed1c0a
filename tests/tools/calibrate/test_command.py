"""`harness calibrate` as a user types it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import complaint, harness, start
from tests.cli.toy_claim import CLAIM
from tests.execution.projects import write_project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The toy project, with a bound that leaves room."""
    write_project(tmp_path)
    path = tmp_path / "contracts" / CLAIM / "contract.json"
    contract = json.loads(path.read_text())
    contract["observation"]["properties"]["inversions"]["maximum"] = 0.5
    path.write_text(json.dumps(contract))
    return tmp_path


def test_runs_are_counted(folder: Path) -> None:
    """The reported list is [3, 1, 2]: one inversion, where at most half of one is allowed."""
    done = harness(folder, "calibrate", CLAIM, "--runs", "2")
    assert done.returncode == ExitStatus.PASS, done.stderr
    assert [line.split(",")[0] for line in done.stderr.splitlines()] == [f"{CLAIM} seed 0", f"{CLAIM} seed 1"]
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0].startswith(f"{CLAIM}: 2 runs of the reduced profile on ")
    assert "(the subject) 2 of 2 (100.0%) every clause" in lines
    assert "identity 2 of 2 (100.0%) inversions.maximum" in lines
    assert "(the subject) inversions.maximum 0 0" in lines
    assert "identity inversions.maximum 2 2" in lines
    assert "inversions 0 0 0" in lines
    assert lines[-2:] == [
        "worst of the subject: 0 of the bound of inversions.maximum, with seed 0; above 1 violates it",
        "worst of the mutants: 2 of the bound of inversions.maximum, identity with seed 0; at most 1: it survives",
    ]
    assert not (folder / "evidence").exists()


def test_what_is_written_is_bound_by_the_contract_and_shown(folder: Path) -> None:
    """`show` prints the ratios beside the measurements. Other profiles and the rest of the contract stay."""
    path = folder / "contracts" / CLAIM / "contract.json"
    before = json.loads(path.read_text())
    done = harness(folder, "calibrate", CLAIM, "--runs", "2", "--write")
    assert done.returncode == ExitStatus.PASS, done.stderr
    content = (folder / "contracts" / CLAIM / "calibration.json").read_bytes()
    after = json.loads(path.read_text())
    assert after == {**before, "calibration": hashlib.sha256(content).hexdigest()}
    (reduced,) = json.loads(content)["profiles"].values()
    assert reduced["seeds"] == {"first": 0, "count": 2}
    assert reduced["mutants"] == {"identity": {"inversions.maximum": 2.0}}
    assert reduced["subject"] == {"inversions.maximum": 0.0}
    assert harness(folder, "fmt", "--check", str(path)).returncode == ExitStatus.PASS
    again = harness(folder, "calibrate", CLAIM, "--runs", "1").stdout
    assert "identity inversions.maximum 2 2 2" in [" ".join(line.split()) for line in again.splitlines()]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["-P", "items=2"], ExitStatus.REFUSED),
        (["--no-mutants"], ExitStatus.REFUSED),
    ],
)
def test_only_whole_runs_of_the_profile_are_written(folder: Path, options: list[str], status: ExitStatus) -> None:
    done = harness(folder, "calibrate", CLAIM, "--runs", "1", "--write", *options)
    assert (done.returncode, done.stdout) == (status, "")


def test_runs_that_fail_are_not_written(folder: Path) -> None:
    path = folder / "contracts" / CLAIM / "contract.json"
    contract = json.loads(path.read_text())
    for profile in contract["profiles"].values():
        profile["parameters"]["how"] = "not at all"
    path.write_text(json.dumps(contract))
    assert harness(folder, "calibrate", CLAIM, "--runs", "1", "--write").returncode == ExitStatus.FAIL
    assert not (folder / "contracts" / CLAIM / "calibration.json").exists()
    assert json.loads(path.read_text()) == contract


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["-P", "how=not at all"], ExitStatus.FAIL, "(the subject) 0 of 1 (0.0%)"),
        (["-P", "how=falsifier raises"], ExitStatus.NOT_MEASURED, "(the subject) 0 of 1 (0.0%)"),
        (["--no-mutants"], ExitStatus.PASS, "(the subject) 1 of 1 (100.0%)"),
    ],
)
def test_the_status_is_that_of_the_worst_run(folder: Path, options: list[str], status: int, said: str) -> None:
    done = harness(folder, "calibrate", CLAIM, "--runs", "1", *options)
    assert done.returncode == status, done.stderr
    assert said in " ".join(done.stdout.split())
    assert ("identity" in done.stdout) is ("--no-mutants" not in options)


@pytest.mark.parametrize(
    "arguments",
    [
        ["F-TOY-SORT-002"],
        [CLAIM, "-P", "itmes=3"],
        [CLAIM, "--device", "gpu"],
        [CLAIM, "--runs", "0"],
        [],
    ],
    ids=["id", "parameter", "device", "runs", "nothing"],
)
def test_what_it_refuses(folder: Path, arguments: list[str], snapshot: SnapshotAssertion) -> None:
    done = harness(folder, "calibrate", *arguments)
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, folder) == snapshot


@pytest.mark.parametrize("command", ["calibrate", "run"])
def test_a_cache_that_cannot_be_used_is_refused_before_anything_runs(folder: Path, command: str) -> None:
    (folder / "cache").write_text("a file is in its place")
    done = harness(folder, command, CLAIM)
    assert (done.returncode, done.stdout) == (ExitStatus.REFUSED, "")
    assert done.stderr.startswith(f"harness: the cache {folder / 'cache'} cannot be used: ")
    assert done.stderr.endswith("; set HARNESS_CACHE_DIR\n")


def test_ctrl_c_prints_what_was_measured(folder: Path) -> None:
    """The interrupted run is left out."""
    process = start(folder, "calibrate", CLAIM, "--runs", "1000", "--no-mutants")
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith(f"{CLAIM} seed 0"), first
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == ExitStatus.INTERRUPTED, output
    assert re.search(r"^F-\S+: [0-9]+ of 1,000 runs, interrupted, of the reduced profile on ", output, re.M), output
    assert re.search(r"\(the subject\) ([0-9]+) of \1 \(100.0%\) every clause", " ".join(output.split())), output
