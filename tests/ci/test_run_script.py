"""The script of the GitHub action, run as a runner runs it, on a project with a real claim."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.cli.harness_command import COMMAND, environment
from tests.execution.projects import write_project

SCRIPT = Path(__file__).parents[2] / ".github" / "actions" / "harness-run" / "run.sh"
CLAIM = "F-TOY-SORT-001"
REPORTS = ["bundles.zip", "claims.sarif", "comment.md", "ctrf.json", "junit.xml", "run.json", "site"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project, with the command `harness` in it."""
    project = tmp_path / "a project"
    project.mkdir()
    write_project(project)
    command = project / "harness"
    command.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    return project


def run(folder: Path, claims: str, options: str = "", fail_on: str = "") -> tuple[int, dict[str, str], Path]:
    """The script's exit status, its outputs, and the folder that it names."""
    outputs, summary = folder / "outputs", folder / "summary.md"
    outputs.write_text("")
    variables = {
        "HARNESS": "./harness",
        "CLAIMS": claims,
        "OPTIONS": options,
        "FAIL_ON": fail_on,
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_STEP_SUMMARY": str(summary),
        "PYTHONPATH": str(SCRIPT.parents[3]),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", str(SCRIPT)], cwd=folder, env={**environment(folder), **variables}, capture_output=True, text=True
    )
    told = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    return done.returncode, told, Path(told["folder"])


def test_a_claim_that_holds_leaves_evidence_and_reports(folder: Path) -> None:
    """They are in one folder, for one artifact; the job's summary has the report too."""
    status, outputs, results = run(folder, CLAIM)
    assert (status, outputs["bundles"]) == (0, "1")
    assert sorted(path.name for path in results.iterdir()) == REPORTS
    assert any(name.endswith("record.json") for name in ZipFile(results / "bundles.zip").namelist())
    assert "1 PASS" in (results / "comment.md").read_text()
    assert "1 PASS" in (folder / "summary.md").read_text()


def test_a_claim_that_fails_is_reported_and_fails_the_step(folder: Path) -> None:
    """The exit status is that of the run."""
    status, outputs, results = run(folder, CLAIM, "-P how=raises")
    assert (status, outputs["bundles"]) == (1, "1")
    assert sorted(path.name for path in results.iterdir()) == REPORTS
    assert "1 FAIL" in (results / "comment.md").read_text()


def test_a_refused_run_fails_and_invents_no_report(folder: Path) -> None:
    """No argument is executed as code."""
    status, outputs, results = run(folder, f"{CLAIM}; touch hacked", "$(touch hacked)")
    assert (status, outputs["bundles"]) == (2, "0")
    assert not (folder / "hacked").exists()
    assert not (results / "comment.md").exists()


def test_the_gate_fails_a_run_that_passed(folder: Path) -> None:
    """The other claim of the project never ran."""
    assert run(folder, CLAIM, fail_on="falsified")[0] == 0
    assert run(folder, CLAIM, fail_on="falsified,unrun")[0] == 3
