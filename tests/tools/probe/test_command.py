"""`harness probe` as a user types it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.schemas import problems
from harness.base.vocabulary import ExitStatus
from harness.tools.probe.text import largest
from tests.cli.harness_command import harness, start

STEPS = """\
import torch


def build(batch: int = 4096, width: int = 1024):
    weight = torch.nn.Parameter(torch.randn(width, width, device="cuda"))
    inputs = torch.randn(batch, width, device="cuda")
    optimizer = torch.optim.AdamW([weight], fused=True)

    def step():
        optimizer.zero_grad()
        (inputs @ weight).relu().sum().backward()
        optimizer.step()

    return step


def reads():
    loss = torch.randn(1, device="cuda")
    return lambda: loss.item() > 0


def forgets_the_device():
    weight = torch.nn.Parameter(torch.randn(64, 64))
    return lambda: (weight @ weight).sum().backward()


def prints(width: int = 64):
    inputs = torch.randn(width, width, device="cuda")
    return lambda: print("a step", (inputs @ inputs).shape)


import os, subprocess, time


def leaves_in_the_step():
    return lambda: os._exit(0)


def returns_twice():
    if os.fork() == 0:
        return lambda: None
    os._exit(0)


def hangs():
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print("started", other.pid, os.getpid(), flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the steps above."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "mine.py").write_text(STEPS)
    return folder


def test_a_sweep_names_the_largest_batch_that_fits(folder: Path) -> None:
    sweep = ("--sweep", "batch=1024,65536", "--device-memory", "1.2")
    done = harness(folder, "probe", "mine:build", *sweep, "--json", "-", "--html", "page.html")
    assert done.returncode == ExitStatus.PASS, done.stderr
    document = json.loads(done.stdout)
    assert problems("probe", document) == []
    assert [case["fit"] for case in document["cases"]] == ["fits", "does not fit"]
    assert document["largest_that_fits"] == {"batch": 1024}
    assert "mine:build" in (folder / "page.html").read_text()


def test_an_argument_that_the_function_does_not_take_is_refused(folder: Path) -> None:
    done = harness(folder, "probe", "mine:build", "--set", "bach=3")
    assert done.returncode == ExitStatus.REFUSED
    assert "bach" in done.stderr


def test_a_step_that_does_not_fit_is_status_one(folder: Path) -> None:
    done = harness(folder, "probe", "mine:build", "--set", "batch=65536", "--device-memory", "1")
    assert done.returncode == ExitStatus.FAIL, done.stderr
    assert f"{folder}/mine.py:11" in done.stdout


def test_a_step_that_cannot_be_seen_is_refused_with_its_line(folder: Path) -> None:
    done = harness(folder, "probe", "mine:reads")
    assert done.returncode == ExitStatus.REFUSED
    assert f"{folder}/mine.py:19" in done.stderr
    assert "aten._local_scalar_dense" in done.stderr


@pytest.mark.parametrize("target", ["mine", "mine:absent", "absent:build"])
def test_a_target_that_is_not_there_is_refused(folder: Path, target: str) -> None:
    assert harness(folder, "probe", target).returncode == ExitStatus.REFUSED


def test_a_step_without_memory_on_the_gpu_is_refused(folder: Path) -> None:
    """A model without device="cuda" must not look like one that fits."""
    done = harness(folder, "probe", "mine:forgets_the_device")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'device="cuda"' in done.stderr


def test_what_the_step_prints_is_no_part_of_the_json(folder: Path) -> None:
    done = harness(folder, "probe", "mine:prints", "--json", "-")
    assert problems("probe", json.loads(done.stdout)) == []
    assert "a step" in done.stderr


def test_a_page_that_cannot_be_written_is_refused_first(folder: Path) -> None:
    done = harness(folder, "probe", "mine:nothing", "--html", "/nowhere/page.html")
    assert done.returncode == 2
    assert "--html" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("function", ["leaves_in_the_step", "returns_twice"])
def test_a_step_that_ends_the_process_does_not_fit(folder: Path, function: str) -> None:
    """A result counts only if it was written."""
    done = harness(folder, "probe", f"mine:{function}", "--json", "-")
    assert (done.returncode, done.stdout) == (ExitStatus.REFUSED, ""), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["probe", "roofline"])
def test_nothing_is_left_when_the_harness_is_killed(folder: Path, command: str) -> None:
    with start(folder, command, "mine:hangs", *(("--device", "cpu") if command == "roofline" else ())) as process:
        assert process.stdout is not None
        words = next(line.split()[1:] for line in process.stdout if line.startswith("started"))
        process.kill()
        for pid in map(int, words):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).wait(60)
            assert not psutil.pid_exists(pid)


def test_a_step_that_hangs_is_refused_at_the_time_limit(folder: Path) -> None:
    done = harness(folder, "probe", "mine:hangs", "--time-limit", "15")
    assert done.returncode == ExitStatus.REFUSED
    words = next(line.split()[1:] for line in done.stderr.splitlines() if line.startswith("started"))
    assert not any(psutil.pid_exists(int(pid)) for pid in words)


@pytest.mark.parametrize(
    "sweeps", [{"batch": [1, 2]}, {"batch": [1, 2], "length": [8, 16]}, {}], ids=["one", "two", "none"]
)
def test_the_largest_that_fits_says_with_which_others(sweeps: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    batches, lengths = sweeps.get("batch", [1]), sweeps.get("length", [8])
    cases = [{"parameters": {"batch": batch, "length": length}} for batch in batches for length in lengths]
    found = {name: None if name == "length" else 1 for name in sweeps}
    assert largest({"largest_that_fits": found, "cases": cases}) == snapshot
