"""The scripts of the GitHub actions, run as a runner runs them. The harness is the real one or a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZipFile

import pytest

from harness.tools.sign import keys
from tests.cli.harness_command import COMMAND, environment
from tests.evidence.factory import sealed
from tests.execution.projects import write_project

ACTIONS = Path(__file__).parents[2] / ".github" / "actions"
CLAIM = "F-TOY-SORT-001"
REPORTS = ["bundles.zip", "claims.sarif", "comment.md", "ctrf.json", "junit.xml", "run.json", "run.log", "site"]
PATIENCE = 300

FAKE = """#!/usr/bin/env bash
# Runs until SIGTERM, and seals a bundle then. Its reports say what they were asked for.
case "$1" in
  run)
    trap 'mkdir -p evidence/i/c/r; echo "{}" > evidence/i/c/r/record.json; exit 130' TERM
    touch began
    while :; do sleep 0.05; done ;;
  report)
    while [ $# -gt 0 ]; do
      case "$1" in --markdown) echo "reported" > "$2" ;; --sarif) echo "{}" > "$2" ;; esac
      shift
    done ;;
esac
"""
TIMEOUT = """#!/usr/bin/env bash
# In place of timeout(1): the time is up as soon as the run has begun.
echo "$*" > timeout-arguments
while [[ $1 != */harness ]]; do shift; done
"$@" &
until [ -e began ]; do sleep 0.05; done
kill -TERM $!
wait $!
exit 124
"""


@dataclass
class Job:
    """The folder and the variables of a job."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        temporary = self.folder.parent / "temporary"
        temporary.mkdir(exist_ok=True)
        self.temporary = temporary
        self.summary = temporary / "summary.md"
        self.variables = {
            **environment(self.folder),
            "HARNESS": "./harness",
            "CLAIMS": CLAIM,
            "OPTIONS": "",
            "FAIL_ON": "",
            "MINUTES": "60",
            "RUNNER_TEMP": str(temporary),
            "RUNNER_TOOL_CACHE": str(temporary / "tools"),
            "GITHUB_OUTPUT": str(temporary / "outputs"),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "PYTHONPATH": str(ACTIONS.parents[1]),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            **self.variables,
        }

    def start(self, script: str, **changes: str) -> subprocess.Popen[str]:
        variables = {**self.variables, **changes}
        # The run could keep a pipe open, so the output goes to a file. If these tests run in the background of a shell,
        # SIGINT is ignored, and bash could not catch it.
        with (self.temporary / "log").open("a") as log:
            return subprocess.Popen(
                ["env", "--default-signal=INT", "bash", str(ACTIONS / script)],
                cwd=self.folder,
                env=variables,
                stdout=log,
                stderr=log,
                text=True,
            )

    def run(self, script: str, **changes: str) -> int:
        """Run a script; return its exit status."""
        return self.start(script, **changes).wait(PATIENCE)

    def claims(self, claims: str = CLAIM, options: str = "", fail_on: str = "") -> tuple[int, int]:
        """Run claims and report them; return the status of the run, and the number of bundles."""
        status = self.run("harness-run/run.sh", CLAIMS=claims, OPTIONS=options, FAIL_ON=fail_on)
        return status, self.report()

    def report(self) -> int:
        assert self.run("harness-report/report.sh") == 0, self.log
        written = (self.temporary / "outputs").read_text().splitlines()
        outputs = dict(line.split("=", 1) for line in written)
        assert outputs["folder"] == str(self.results)
        return int(outputs["bundles"])

    @property
    def results(self) -> Path:
        return self.temporary / "harness"

    @property
    def comment(self) -> str:
        return (self.results / "comment.md").read_text()

    @property
    def log(self) -> str:
        return (self.temporary / "log").read_text()

    def command(self, name: str, text: str) -> None:
        """Write an executable script."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job in a project with real claims, with the real command `harness` in it."""
    project = tmp_path / "a project"
    project.mkdir()
    write_project(project)
    made = Job(project)
    made.command("harness", f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    return made


@pytest.fixture
def fake(tmp_path: Path) -> Job:
    """A job whose harness runs until a signal ends it."""
    project = tmp_path / "project"
    project.mkdir()
    made = Job(project)
    made.command("harness", FAKE)
    return made


def await_(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_claim_that_holds_leaves_evidence_and_reports(job: Job) -> None:
    """Evidence and reports are in one folder, for one artifact. The job's summary has the report too."""
    assert job.claims() == (0, 1), job.log
    assert sorted(path.name for path in job.results.iterdir()) == REPORTS
    assert any(name.endswith("record.json") for name in ZipFile(job.results / "bundles.zip").namelist())
    assert "1 PASS" in job.comment
    assert "[!" not in job.comment
    assert "1 PASS" in job.summary.read_text()


def test_a_claim_that_fails_is_reported_and_fails_the_step(job: Job) -> None:
    """The exit status of the step is that of the run."""
    assert job.claims(options="-P how=raises") == (1, 1)
    assert sorted(path.name for path in job.results.iterdir()) == REPORTS
    assert "1 FAIL" in job.comment


def test_a_refused_run_fails_and_invents_no_report(job: Job) -> None:
    """No argument is executed as code."""
    assert job.claims(f"{CLAIM}; touch hacked", "$(touch hacked)") == (2, 0)
    assert not (job.folder / "hacked").exists()
    assert job.comment.startswith("> [!CAUTION]\n> **Nothing ran**: the run was refused.")


def test_a_runner_without_a_working_gpu_is_red(job: Job) -> None:
    """The default options of the action refuse the run; nothing falls back to the CPU."""
    job.variables["CUDA_VISIBLE_DEVICES"] = ""
    assert job.claims(options="--stale --profile full --require-gpu") == (2, 0)
    assert "--require-gpu: no GPU works on this machine" in job.comment


def test_the_gate_fails_a_run_that_passed_and_the_next_run_has_nothing_to_do(job: Job) -> None:
    """The other claim of the project never ran. The comment says that nothing was due, not that the run ended early."""
    assert job.claims(fail_on="falsified,unrun") == (3, 1)
    assert job.claims(f"--stale {CLAIM}") == (0, 0)
    assert job.comment == "**Nothing was due**: 1 claims, 1 covered by evidence.\n\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_cancelled_run_seals_and_is_reported(fake: Job, number: signal.Signals) -> None:
    """The runner signals the script alone; the run seals what it measured, and the report is made."""
    script = fake.start("harness-run/run.sh")
    await_((fake.folder / "began").exists)
    script.send_signal(number)
    assert script.wait(PATIENCE) == 130
    assert fake.report() == 1
    assert fake.comment.startswith("> [!WARNING]\n> **Ended early**: it was cancelled")
    assert "evidence/i/c/r/record.json" in ZipFile(fake.results / "bundles.zip").namelist()


def test_a_run_whose_script_was_killed_is_told_to_seal(fake: Job) -> None:
    """The runner kills the script after ten seconds. The report waits for the run."""
    script = fake.start("harness-run/run.sh")
    await_((fake.folder / "began").exists)
    script.kill()
    script.wait(PATIENCE)
    assert fake.report() == 1
    assert "**Ended early**" in fake.comment
    assert fake.comment.endswith("reported\n")


def test_a_run_ends_before_its_job_does(fake: Job) -> None:
    """The run gets the time that the job has left, without the time for reports."""
    fake.command("timeout", TIMEOUT)
    fake.variables["PATH"] = f"{fake.folder}{os.pathsep}{fake.variables['PATH']}"
    assert fake.run("harness-run/run.sh", MINUTES="60", HARNESS=str(fake.folder / "harness")) == 124
    seconds = int((fake.folder / "timeout-arguments").read_text().split()[3])
    assert 0 < seconds <= 50 * 60
    assert fake.report() == 1
    assert fake.comment.startswith(
        "> [!WARNING]\n> **Ended early**: its time limit was reached. 1 claims have a result"
    )


def test_a_job_that_never_ran_a_claim_says_so(fake: Job) -> None:
    """If the installation failed, the report says that no claim ran."""
    assert fake.run("harness-run/install.sh", INSTALL="false") == 1
    assert fake.report() == 0
    assert "**Nothing ran**" in fake.comment


def test_a_virtual_environment_outlives_the_checkout(fake: Job) -> None:
    """The commands of `install` run each time.

    Changed requirements begin a new environment, and the checkout is not changed.
    """
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    (fake.folder / ".gitignore").write_text(".venv/\nlog\n")
    for command in (["init", "-q"], ["add", ".gitignore", "harness"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], cwd=fake.folder, check=True)
    install = (
        "python3 -m venv --without-pip .venv; echo run >> log\n"
        "[ -e .venv/torch ] || { echo download >> log; touch .venv/torch; }"
    )
    for _ in range(2):
        assert fake.run("harness-run/install.sh", INSTALL=install) == 0, fake.log
        assert not subprocess.check_output(["git", "status", "--porcelain"], cwd=fake.folder, text=True)
        shutil.rmtree(fake.folder / ".venv")  # as a checkout does
    assert (fake.folder / "log").read_text().split() == ["run", "download", "run"]
    (fake.folder / "constraints.txt").write_text("torch==3\n")
    assert fake.run("harness-run/install.sh", INSTALL=install) == 0
    assert (fake.folder / "log").read_text().split().count("download") == 2
    half = "[ ! -e .venv/half ] && mkdir .venv && touch .venv/half && [ -e mended ]"
    assert fake.run("harness-run/install.sh", INSTALL=half) == 1
    (fake.folder / "mended").touch()
    assert fake.run("harness-run/install.sh", INSTALL=half) == 0, "what a failed installation left was kept"


def test_kept_evidence_is_signed_and_restored(job: Job, tmp_path: Path) -> None:
    """One night's bundle is in the branch, signed, and the next night reads it.

    Evidence signed by another key is refused.
    """
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    harness = str(job.folder / "harness")
    for name in ("key", "other"):
        keys.generate(tmp_path / name)
    kept = {"HARNESS": harness, "BRANCH": "kept", "REMOTE": str(remote), "KEPT": str(tmp_path / "kept")}
    kept |= {"SIGNING_KEY": (tmp_path / "key").read_text(), "RECEIVED": str(tmp_path / "received")}
    for night in ("first", "second"):
        bundle = sealed(tmp_path / night, run=f"2026-11-20T201503Z-cpu-{night}")
        received = tmp_path / "received" / "evidence-cpu"
        shutil.rmtree(received, ignore_errors=True)
        received.mkdir(parents=True)
        shutil.make_archive(str(received / "bundles"), "zip", bundle.parents[2])
        assert job.run("harness-keep/keep.sh", **kept) == 0, job.log
    assert (tmp_path / "kept" / "claims.sarif").is_file()

    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--branch", "kept", str(remote), str(clone)], check=True)
    assert len(list(clone.glob("evidence/*/*/*/attestation.intoto.jsonl"))) == 2
    shutil.rmtree(clone / "evidence")
    next_night = Job(clone)
    key, other = ((tmp_path / f"{name}.pub").read_text() for name in ("key", "other"))
    restore = {"HARNESS": harness, "BRANCH": "kept"}
    assert next_night.run("harness-run/restore.sh", **restore, TRUSTED_KEY=other) == 1
    assert not (clone / "evidence").exists()
    assert next_night.run("harness-run/restore.sh", **restore, TRUSTED_KEY=key) == 0, next_night.log
    assert len(list(clone.glob("evidence/*/*/*/record.json"))) == 2
    assert next_night.run("harness-run/restore.sh", HARNESS=harness, BRANCH="none", TRUSTED_KEY=key) == 0


def test_without_a_key_nothing_is_kept(fake: Job) -> None:
    """Without a key the job fails, and the message says how to make one."""
    assert fake.run("harness-keep/keep.sh", SIGNING_KEY="", BRANCH="b", RECEIVED="r", REMOTE="x", KEPT="k") == 1
    assert "harness keygen" in fake.log


def test_the_summary_adds_up_watched_jobs(job: Job) -> None:
    """It has the jobs that were watched since yesterday, and the GPU-hours saved."""
    place = Path(job.variables["HARNESS_CACHE_DIR"]) / "watch" / "big"
    place.mkdir(parents=True)
    fact = {"fact": "job", "at": 0.0, "name": "big", "values": {"steps": 100}}
    (place / "facts.jsonl").write_text(json.dumps(fact) + "\n")
    job.report()
    assert "1 job, 0 running, 0 refuted, 0 ended early: 0.00 GPU-hours saved" in job.summary.read_text()
