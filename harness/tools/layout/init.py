"""`harness init`: makes a repository a project with claims."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from harness.base import regular_file, toml
from harness.base.schemas import schema_folder
from harness.base.vocabulary import ExitStatus
from harness.cli.scaffold import render, write_all
from harness.report.terminal.printing import tell

__all__ = ["command"]

_BUNDLES = "evidence/**"
"""The pattern of the line in .gitattributes; see gitattributes.template."""


@click.command("init", short_help="set up the harness in another repository")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
def command(folder: Path) -> ExitStatus:
    """Make a repository a project: [tool.harness] in its pyproject.toml, contracts/, falsifiers/ and evidence/.

    The table is added at the end of pyproject.toml. A line at the end of .gitattributes folds evidence/ in diffs; a
    line for evidence/** that is there already stays as it is. Nothing is overwritten: if the table or one of the new
    files exists, the command writes nothing.
    """
    root = Path(os.path.realpath(folder))
    pyproject = root / "pyproject.toml"
    table = render("pyproject.toml.template", pythonpath=json.dumps([".", "src"] if (root / "src").is_dir() else ["."]))
    contents = {
        # Copies for editors. The harness reads its own.
        **{
            root / "contracts" / "schema" / path.name: regular_file.read(path).decode("utf-8")
            for path in sorted(schema_folder().glob("*.schema.json"))
        },
        root / "falsifiers" / "__init__.py": render("falsifiers.py.template"),
        root / "evidence" / ".gitignore": render("evidence.gitignore.template"),
    }
    additions: dict[Path, str] = {}
    if pyproject.exists():
        additions[pyproject] = _addition(pyproject, table)
    else:
        contents[pyproject] = table
    attributes = root / ".gitattributes"
    lines = render("gitattributes.template")
    if not attributes.exists():
        contents[attributes] = lines
    elif not any(line.split()[:1] == [_BUNDLES] for line in _text(attributes).splitlines()):
        additions[attributes] = _appended(_text(attributes), lines)
    try:
        write_all(contents, additions)
    except OSError as error:
        raise click.ClickException(f"{error}; move that file, or write [tool.harness] by hand") from error
    for path in contents:
        tell(f"wrote {path.relative_to(root)}")
    for path in additions:
        added = "[tool.harness]" if path == pyproject else _BUNDLES
        tell(f"added {added} to {path.relative_to(root)}")
    tell("")
    tell("Now make a claim: harness new F-FAMILY-CLAIM-001")
    return ExitStatus.PASS


def _addition(pyproject: Path, table: str) -> str:
    """Return the text to append to a pyproject.toml, with its line ends: the table, and no other change."""
    try:
        before = _text(pyproject)
        document = toml.loads(before)
    except ValueError as error:
        raise click.ClickException(f"{pyproject} cannot be read: {error}") from error
    tool = document.get("tool", {})
    if isinstance(tool, dict) and "harness" in tool:
        raise click.ClickException(f"{pyproject} already has [tool.harness]: this is a project")
    addition = _appended(before, table)
    try:
        after = toml.loads(before + addition)
        grown = {**document, "tool": {**tool, "harness": after["tool"]["harness"]}} == after
    except (ValueError, TypeError):
        grown = False
    if not grown:
        raise click.ClickException(
            f"{pyproject} defines `tool` in a way that allows no further table; write it as [tool]"
        )
    return addition


def _text(path: Path) -> str:
    """Return the text of a file, with the line ends that it has."""
    try:
        return regular_file.read(path).decode("utf-8")
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path} cannot be read: {error}") from error


def _appended(before: str, text: str) -> str:
    """Return a text to append to a file: with the file's line ends, after an empty line."""
    newline = "\r\n" if "\r\n" in before else "\n"
    gap = "" if not before else newline if before.endswith("\n") else 2 * newline
    return gap + text.replace("\n", newline)
