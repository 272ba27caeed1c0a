"""What is done about a refutation of a job of Slurm, and the script for its prolog and epilog."""

from __future__ import annotations

import os
import shutil
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
    ("action", "steps", "words"),
    [
        (Action.STOP, "4711.0\n4711.batch\n", "scancel --signal=TERM 4711"),
        (Action.STOP, "4711.batch\n", "scancel --signal=TERM --full 4711"),
        (Action.STOP, None, "scancel --signal=TERM 4711"),
        (Action.KILL, "4711.0\n", "scancel 4711"),
    ],
)
def test_a_job_of_slurm_is_cancelled(slurm: Path, action: Action, steps: str | None, words: str) -> None:
    """To stop it means a signal for its steps, so that they can save; for a batch script that has none, for all.

    If squeue fails, it may have steps.
    """
    if steps is not None:
        (slurm / "queue").write_text(steps)
    assert end_job(action, None, "4711", 1.0) == (True, f"{words}: status 0")
    assert (slurm / "called").read_text().splitlines()[-1] == words


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


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="needs a cluster of Slurm")
@pytest.mark.parametrize("options", ["", "--slurm-job $SLURM_JOB_ID"])
def test_on_a_cluster(tmp_path: Path, options: str) -> None:
    """A step that is refuted gets SIGTERM from its watcher or by scancel, saves, and the batch script goes on."""
    if subprocess.run(["sinfo"], capture_output=True).returncode != 0:
        pytest.skip("needs a cluster of Slurm that answers sinfo")
    root, out, state = project_of(tmp_path), tmp_path / "out", tmp_path / "state"
    out.mkdir()
    saves = "import signal, sys, runpy; signal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(0)))"
    line = job_line(4000, 0, "nan", out, 0.05)
    (root / "saving.py").write_text(f"{saves}; sys.argv = {line[1:]!r}; runpy.run_path('job.py', run_name='__main__')")
    script = f"""#!/bin/sh
export WATCH="toy.toml -P steps=4000 -P device=cpu --every 0.2s --attach {out} --on-refute stop {options}"
export WATCH_STATE={state}
srun --output={out}/run.log --task-prolog={SCRIPT} --task-epilog={SCRIPT} {sys.executable} saving.py
echo the script goes on
"""
    (root / "job.sh").write_text(script)
    variables = {**environment(root), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    words = ["sbatch", "--wait", f"--output={root}/batch.log", "job.sh"]
    assert subprocess.run(words, cwd=root, env=variables, timeout=120).returncode == 0
    assert "saved" in (out / "run.log").read_text().splitlines()
    assert "the script goes on" in (root / "batch.log").read_text()
    facts = facts_in(state / FACTS)
    assert [fact["ends"] for fact in facts if fact["fact"] == "acted"] == [True]
    assert [bundle.record.verdict for bundle in bundles(root / "evidence")] == [Verdict.FAIL]
