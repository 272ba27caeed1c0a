"""`harness --help`: one line per command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click
import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from harness.cli import _COMMANDS, _group, _summary, _tools
from tests.cli.harness_command import COMMAND, complaint, environment, harness


def test_every_command_has_a_line_of_its_own(tmp_path: Path) -> None:
    """No line of the overview is cut."""
    lines = harness(tmp_path, "--help").stdout.splitlines()
    assert not [line for line in lines if line.endswith("...") and "Usage" not in line]
    assert max(map(len, lines)) <= 80
    for texts in (_COMMANDS, {name: _summary(tool) for name, tool in _tools().items()}):
        wide = max(map(len, texts))
        for name, summary in texts.items():
            assert f"  {name:<{wide}}  {summary}" in lines
            command = _group.get_command(click.Context(_group), name)
            assert command is not None
            assert command.name == name


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_cannot_be_written(tmp_path: Path, unbuffered: str, snapshot: SnapshotAssertion) -> None:
    """A full disk is not a defect of the harness: the output is one line, and the status is neither PASS nor FAIL."""
    with open("/dev/full", "wb") as full:
        for arguments in (["--help"], ["list", "--help"], ["--version"]):
            done = subprocess.run(
                [*COMMAND, *arguments],
                env={**environment(tmp_path), "PYTHONUNBUFFERED": unbuffered},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert done.returncode == ExitStatus.NOT_MEASURED
            assert complaint(done, tmp_path) == snapshot


def test_a_command_that_is_mistyped(tmp_path: Path) -> None:
    """The message suggests the nearest name, if one is near."""
    for name, near in (("veriy", "no such command 'veriy'. Did you mean 'verify'?"), ("xyzzy", "command 'xyzzy'\n")):
        done = harness(tmp_path, name)
        assert done.returncode == ExitStatus.REFUSED
        assert near in done.stderr
