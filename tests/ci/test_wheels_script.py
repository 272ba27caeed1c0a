"""The script that builds wheels twice: equal wheels are kept with their digests, and others end the job."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".github" / "actions" / "harness-wheels" / "build.sh"

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1.0"
requires-python = ">=3.11"
[tool.hatch.build.targets.wheel]
bypass-selection = true
[tool.hatch.build.targets.wheel.force-include]
"{file}" = "{name}/data.txt"
[tool.hatch.build.targets.wheel.hooks.custom]
path = "hook.py"
"""

HOOK = """
import time
from pathlib import Path
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        Path(self.root, "made.txt").write_text(str({value}))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A commit with two projects. A hook writes a file of the first one's wheel."""
    folder = tmp_path / "project"
    (folder / "claims").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(name="one", file="made.txt"))
    (folder / "claims" / "pyproject.toml").write_text(PROJECT.format(name="two", file="../stated.txt"))
    (folder / "stated.txt").write_text("the same everywhere\n")
    (folder / "claims" / "hook.py").write_text(HOOK.format(value="'unused'"))
    return folder


def run(project: Path, value: str) -> subprocess.CompletedProcess[str]:
    """Commit a hook that writes a value, and build."""
    (project / "hook.py").write_text(HOOK.format(value=value))
    identity = {f"GIT_{role}_{key}": "test" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=project, env={**os.environ, **identity}, check=True)
    wheels = {"PYTHON": sys.executable, "WHEELS": str(project.parent / "wheels")}
    environment = {**os.environ, **wheels, "TMPDIR": str(project.parent)}
    return subprocess.run(["bash", SCRIPT], cwd=project, env=environment, capture_output=True, text=True)


def test_equal_wheels_are_kept_with_their_digests(project: Path) -> None:
    done = run(project, "'the same'")
    assert done.returncode == 0, done.stdout + done.stderr
    wheels = project.parent / "wheels"
    names = ["one-1.0-py3-none-any.whl", "two-1.0-py3-none-any.whl"]
    assert sorted(path.name for path in wheels.iterdir()) == ["SHA256SUMS", *names]
    lines = [f"{hashlib.sha256((wheels / name).read_bytes()).hexdigest()}  {name}" for name in names]
    assert (wheels / "SHA256SUMS").read_text().splitlines() == lines


@pytest.mark.parametrize("value", ["self.root", "time.localtime(0)"])
def test_a_wheel_that_depends_on_its_build_is_refused(project: Path, value: str) -> None:
    """On its folder or its time zone. No wheel is left."""
    done = run(project, value)
    assert (done.returncode, "::error title=not reproducible" in done.stdout) == (1, True), done.stdout + done.stderr
    assert not (project.parent / "wheels").exists()


def test_a_build_that_fails_says_why(project: Path) -> None:
    done = run(project, "1 / 0")
    assert (done.returncode, "ZeroDivisionError" in done.stdout) == (1, True), done.stdout + done.stderr
    assert not (project.parent / "wheels").exists()
