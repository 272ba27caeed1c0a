"""docs/gx10.md: its commands exist, its claims are those of the spec, and a recorded GB10 meets their requirements."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from harness.cli import _group
from harness.contract.project import Project
from harness.machine.host import probe
from harness.machine.requirements import shortfalls
from tests.recorded import replay

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "gx10.md").read_text(encoding="utf-8")
COMMANDS = [
    line.partition("#")[0]
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("harness ")
]
CLAIMS = sorted(path.parent.name for path in (ROOT / "contracts" / "nanochat").glob("*/contract.json"))


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_is_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options and arguments are valid. The command is not run."""
    monkeypatch.chdir(ROOT)
    name, *arguments = shlex.split(line)[1:]
    command = _group.get_command(click.Context(_group), name)
    assert command is not None
    command.make_context(name, arguments)


def test_the_page_names_every_claim() -> None:
    assert sorted(set(re.findall(r"F-GB10-[A-Z0-9-]+-001", PAGE))) == CLAIMS


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_recorded_gb10_meets_what_a_claim_needs(claim: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All requirements are met, except modules, which depend on this machine."""
    requires = dict(Project.find(ROOT / "contracts" / "nanochat").contract(claim).profiles["full"].requires)
    requires.pop("modules", None)
    replay("gb10", monkeypatch, tmp_path)
    assert shortfalls(requires, probe()) == []
