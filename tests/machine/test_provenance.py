"""The harness names its version and commit, also where its package is not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import harness
from harness.base.version import VERSION
from harness.machine import git
from harness.machine.provenance import harness_commit, harness_identity

ROOT = Path(harness.__file__).parents[1]


def test_the_version_needs_no_installed_package() -> None:
    """A source tree has no metadata. `-S` leaves out the folder of installed packages."""
    code = "from harness.machine.provenance import harness_identity; print(harness_identity()['version'])"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == VERSION == harness_identity()["version"]


@pytest.mark.parametrize(
    ("told", "commit"),
    [
        (git.Commit("a" * 40, False), {"commit": "a" * 40}),
        (git.Commit("a" * 40, True), {"commit": "a" * 40 + "-dirty"}),
        (git.Commit("a" * 40, None, "git took too long"), {"commit": "a" * 40}),
        (git.Commit(None, None, "no git"), {}),
    ],
)
def test_the_commit_of_a_source_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: git.Commit, commit: Mapping[str, str]
) -> None:
    """Changes in it are marked as `git describe --dirty` marks them."""
    asked: list[Path] = []
    monkeypatch.setattr(git, "commit", lambda root: asked.append(root) or told)
    (tmp_path / ".git").touch()
    assert harness_commit(tmp_path / "harness") == commit
    assert asked == [tmp_path / "harness"]


def test_an_installed_package_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository around a virtual environment is another project's."""
    monkeypatch.setattr(git, "commit", lambda root: git.Commit("a" * 40, False))
    (tmp_path / ".git").mkdir()
    assert harness_commit(tmp_path / ".venv/lib/python3.11/site-packages/harness") == {}
