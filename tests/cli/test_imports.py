"""Each command imports only the libraries that it needs, so that it starts fast."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import click
import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from harness.cli import _COMMANDS, _group, _summary, _tools
from tests.cli.harness_command import COMMAND, complaint, environment, harness, imported
from tests.cli.toy_claim import CLAIM
from tests.execution.projects import write_project

HARNESS = Path(__file__).parents[2] / "harness"
HEAVY = {"torch", "numpy", "pandas", "matplotlib", "transformers"}
"""No command below needs one of these."""
COMMANDS = {
    ("run", CLAIM): {"junitparser", "rich", "hypothesis", *HEAVY},
    ("list",): {"junitparser", "rich", "hypothesis", "jsonschema", "cel", "psutil", "pynvml", "filelock", *HEAVY},
    ("show", CLAIM): {"junitparser", "rich", "hypothesis", "filelock", *HEAVY},
    ("status",): {"junitparser", "rich", "hypothesis", *HEAVY},
    ("verify", "evidence"): {"junitparser", "rich", "hypothesis", *HEAVY},
    ("report", "evidence", "--markdown", "-"): {"junitparser", "rich", "hypothesis", "jinja2", *HEAVY},
    ("doctor",): {"junitparser", "rich", "hypothesis", *HEAVY},
}
"""Modules that each command, with its output in a pipe, must not import."""


def test_commands_import_only_what_they_need(tmp_path: Path) -> None:
    """`harness run` without --junit needs no junitparser, and a pipe needs no rich."""
    write_project(tmp_path)
    found = {}
    for arguments, unwanted in COMMANDS.items():
        done, modules = imported(tmp_path, *arguments)
        assert done.returncode == ExitStatus.PASS, (arguments, done.stdout, done.stderr)
        found[arguments] = modules & unwanted
    assert {arguments: names for arguments, names in found.items() if names} == {}


def test_only_the_searches_import_hypothesis() -> None:
    """Imports for type checkers do not count."""
    places = {
        path.relative_to(HARNESS).parts[:2]
        for path in HARNESS.rglob("*.py")
        for node in _executed(ast.parse(path.read_text()))
        if "hypothesis" in _imports(node)
    }
    assert places == {("tools", "search")}


def _executed(tree: ast.AST) -> list[ast.AST]:
    """All nodes except those below `if TYPE_CHECKING:`."""
    found = [tree]
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            found += _executed(child)
    return found


def _imports(node: ast.AST) -> set[str]:
    """The top-level modules that a statement imports."""
    if isinstance(node, ast.Import):
        return {name.name.partition(".")[0] for name in node.names}
    return {(node.module or "").partition(".")[0]} if isinstance(node, ast.ImportFrom) else set()


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
