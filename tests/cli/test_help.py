"""`harness --help`: a line a command."""

from __future__ import annotations

import importlib
from pathlib import Path

from harness.cli import _COMMANDS
from tests.cli.harness_command import harness


def test_every_command_has_a_line_of_its_own(tmp_path: Path) -> None:
    """None is cut, and all are there."""
    lines = harness(tmp_path, "--help").stdout.splitlines()
    assert not [line for line in lines if line.endswith("...") and "Usage" not in line]
    assert max(map(len, lines)) <= 80
    for name, summary in _COMMANDS.items():
        assert f"  {name:<8} {summary}" in lines
        assert importlib.import_module(f"harness.cli.{name}").command.name == name
