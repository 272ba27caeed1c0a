"""Ledgers that no session of pytest wrote are refused, and none is waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.tools.suite.session import read_ledger


def sparse(path: Path) -> None:
    """Make a file of 10 GB that has no byte on the disk."""
    with path.open("wb") as file:
        file.truncate(10 << 30)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
    "10 GB of holes": sparse,
    "noise": lambda path: path.write_bytes(bytes(range(256)) + b"\n"),
    "nested without end": lambda path: path.write_text("[" * 100_000 + "\n"),
    "a key twice": lambda path: path.write_text('{"end": 1, "end": 1, "files": []}\n'),
    "no function": lambda path: path.write_text('{"collected": "a"}\n'),
    "a list as an id": lambda path: path.write_text('{"collected": ["a"]}\n'),
    "an end without files": lambda path: path.write_text('{"end": 1}\n'),
    "an object as an id": lambda path: path.write_text('{"test": {}}\n'),
}


def test_small_text_makes_no_large_memory(tmp_path: Path) -> None:
    """36 MB of empty objects would take 860 MB. The limit of memory is that of a process of its own."""
    (tmp_path / "ledger").write_text('{"end": 1, "files": [' + "{}," * 12_000_000 + "{}]}\n")
    code = (
        "import pathlib, resource, sys; from harness.tools.suite.session import read_ledger\n"
        "resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))\n"
        "try: read_ledger(pathlib.Path(sys.argv[1]), 0)\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "ledger"], capture_output=True, text=True)
    assert "36000026 characters" in done.stdout, done.stderr


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_a_ledger_that_no_session_wrote(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "ledger")
    with pytest.raises((OSError, ValueError)):
        read_ledger(tmp_path / "ledger", 0)
