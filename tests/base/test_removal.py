"""The removal of what hostile code leaves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.base.beneath import Beneath
from harness.base.removal import remove

NOBODY = 65534


def nest(folder: Path, depth: int) -> None:
    """Make folders within each other, deeper than a path can be long."""
    here = os.getcwd()
    os.chdir(folder)
    try:
        for _ in range(depth):
            os.mkdir("d" * 100)
            os.chdir("d" * 100)
    finally:
        os.chdir(here)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that a user without rights may use."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


def test_any_depth_with_few_descriptors(tmp_path: Path) -> None:
    """Neither the stack nor the number of open files grows with the depth. A second removal finds nothing."""
    (tmp_path / "maze").mkdir()
    nest(tmp_path / "maze", 1_100)
    assert remove(Beneath(tmp_path, "maze")) == []
    assert list(tmp_path.iterdir()) == []
    assert remove(Beneath(tmp_path, "maze")) == remove(Beneath(tmp_path, "none/maze")) == []


def test_special_files_and_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    """Pipes, sockets, open files and links are removed; the targets of links stay."""
    kept, maze = tmp_path / "kept", tmp_path / "maze"
    kept.mkdir()
    (kept / "file").touch()
    maze.mkdir()
    os.mkfifo(maze / "pipe")
    (maze / "link").symlink_to(kept, target_is_directory=True)
    with socket.socket(socket.AF_UNIX) as bound, (maze / "open").open("w"):
        bound.bind(str(maze / "socket"))
        assert remove(Beneath(tmp_path, "maze")) == []
    (tmp_path / "link").symlink_to(kept, target_is_directory=True)
    assert remove(Beneath(tmp_path, "link")) == []
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]


def test_closed_folders_are_opened(open_to_all: Path) -> None:
    """A user without rights removes his own folders with all permissions cleared."""
    script = """
import os, sys
from pathlib import Path
from harness.base.beneath import Beneath
from harness.base.removal import remove
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
os.chdir(sys.argv[1])
os.makedirs("maze/a/b/c")
Path("maze/a/b/file").touch()
for name in ("maze/a/b/c", "maze/a/b", "maze/a", "maze"):
    os.chmod(name, 0)
print(remove(Beneath(Path(sys.argv[1]), "maze")))
"""
    done = subprocess.run([sys.executable, "-c", script, str(open_to_all)], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
    assert list(open_to_all.iterdir()) == []


def test_what_belongs_to_others_is_named(open_to_all: Path) -> None:
    """What cannot be removed is returned with its path; everything else is removed."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    held = open_to_all / "maze" / "held"
    held.mkdir(parents=True)
    for number in range(5):
        (held / str(number)).touch()
    (open_to_all / "maze" / "mine").touch()
    os.chown(open_to_all / "maze", NOBODY, NOBODY)
    child = os.fork()
    if child == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        left = remove(Beneath(open_to_all, "maze"))
        named = ["'./maze/held/" in line for line in left]
        os._exit(0 if named == [True, True, True, False] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [path.name for path in (open_to_all / "maze").iterdir()] == ["held"]


def test_a_machine_without_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `rm`, the file is named as left."""
    (tmp_path / "maze").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert remove(Beneath(tmp_path, "maze")) == [f"{tmp_path}/maze: No such file or directory"]
