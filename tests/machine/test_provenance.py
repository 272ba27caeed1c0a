"""The harness names its version and commit, also where its package is not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import harness
from harness.base.version import VERSION
from harness.machine import git
from harness.machine.provenance import harness_commit, harness_identity
from harness.machine.timebox import Answer

ROOT = Path(harness.__file__).parents[1]


def test_the_version_needs_no_installed_package() -> None:
    """A source tree has no metadata. `-S` leaves out the folder of installed packages."""
    code = "from harness.machine.provenance import harness_identity; print(harness_identity()['version'])"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == VERSION == harness_identity()["version"]


def changed(package: Path) -> None:
    (package / "one.py").write_text("1\n")


def hidden(package: Path) -> None:
    subprocess.run(["git", "update-index", "--assume-unchanged", "one.py"], cwd=package, check=True)
    changed(package)


def added(package: Path) -> None:
    (package / "two.py").touch()


@pytest.mark.parametrize(
    ("change", "suffix"), [(lambda package: None, ""), (changed, "-dirty"), (hidden, "-dirty"), (added, "-dirty")]
)
def test_the_commit_of_a_source_tree(tmp_path: Path, change: Callable[[Path], None], suffix: str) -> None:
    """Changes in it are marked as `git describe --dirty` marks them."""
    package = tmp_path / "harness"
    package.mkdir()
    (package / "one.py").touch()
    author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for arguments in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "one"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True, check=True)
    change(package)
    assert harness_commit(package) == {"commit": head.stdout.strip() + suffix}


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What git cannot tell is left out."""
    monkeypatch.setattr(git, "commit", lambda root: Answer(None, "no git"))
    (tmp_path / ".git").touch()
    assert harness_commit(tmp_path / "harness") == {}


def test_an_installed_package_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository around a virtual environment is another project's."""
    monkeypatch.setattr(git, "commit", lambda root: Answer("a" * 40))
    (tmp_path / ".git").mkdir()
    assert harness_commit(tmp_path / ".venv/lib/python3.11/site-packages/harness") == {}
