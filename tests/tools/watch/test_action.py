"""What is done about a refutation of a job of Slurm, and the script for its prolog and epilog."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.base.vocabulary import Verdict
from harness.tools.watch.action import Action, end_job, slurm_state
from harness.tools.watch.facts import FACTS, facts_in
from tests.cli.harness_command import environment
from tests.tools.watch.jobs import bundles, job_line, project_of

SCRIPT = Path(__file__).parents[3] / "trainers" / "watch_slurm.sh"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands of Slurm that note their words, and say what a file says."""
    for name in ("scancel", "squeue"):
        program = tmp_path / name
        program.write_text(
            f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/called\n[ {name} = scancel ] || cat {tmp_path}/queue\n'
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize(
    ("action", "words"), [(Action.STOP, "scancel --signal=TERM --full 4711"), (Action.KILL, "scancel 4711")]
)
def test_a_job_of_slurm_is_cancelled(slurm: Path, action: Action, words: str) -> None:
    """To stop it means a signal, so that it can save."""
    assert end_job(action, None, "4711", 1.0) == (True, f"{words}: status 0")
    assert (slurm / "called").read_text().strip() == words


def test_the_state_of_a_job_of_slurm(slurm: Path) -> None:
    """Empty if the queue has it no more; None if Slurm does not answer."""
    (slurm / "queue").write_text("RUNNING\n")
    assert slurm_state("4711") == "RUNNING"
    (slurm / "queue").write_text("")
    assert slurm_state("4711") == ""
    (slurm / "queue").unlink()
    assert slurm_state("4711") is None


def test_prolog_and_epilog(tmp_path: Path) -> None:
    """The prolog watches the process that becomes the task, and the epilog finishes what its end cut off."""
    root, out, state = project_of(tmp_path), tmp_path / "out", tmp_path / "state"
    out.mkdir()
    watch = f"toy.toml -P steps=40 -P device=cpu -P settle_seconds=0.05 --every 0.1s --attach {out}"
    variables = {
        **environment(root), "WATCH": watch, "WATCH_STATE": str(state), "WATCH_ISSUE": "DEMO-9", "SLURM_PROCID": "0",
        "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    words = " ".join(job_line(40, 0, "held", out))
    task = subprocess.Popen(["/bin/sh", "-c", f"{SCRIPT}; exec {words} > {out}/run.log"], cwd=root, env=variables)
    while not (state / FACTS).exists() or not facts_in(state / FACTS):
        assert task.poll() is None
        time.sleep(0.02)
    (root / "go").touch()
    assert task.wait(120) == 0
    job = facts_in(state / FACTS)[0]
    assert job["pid"] == task.pid
    for _ in range(100):  # of a task that ends, Slurm kills the watcher; here it may still hold the facts
        epilog = subprocess.run([str(SCRIPT)], cwd=root, env=variables)
        if epilog.returncode != 2:
            break
    assert epilog.returncode == 1
    assert {fact["check"] for fact in facts_in(state / FACTS) if fact["fact"] == "refuted"} == {"losses_not_finite"}
    [bundle] = bundles(root / "evidence")
    assert (bundle.record.issue, bundle.record.verdict) == ("DEMO-9", Verdict.FAIL)
