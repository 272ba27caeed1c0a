"""`harness init`: makes a repository a project with claims."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import click

from harness.base.schemas import schema_folder
from harness.base.vocabulary import ExitStatus
from harness.cli.scaffold import render, write_all

__all__ = ["command"]


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
def command(folder: Path) -> ExitStatus:
    """Make a repository a project: [tool.harness] in its pyproject.toml, contracts/, falsifiers/ and evidence/.

    The table is added at the end of pyproject.toml. Nothing is overwritten: if the table or one of the new files
    exists, the command writes nothing.
    """
    root = folder.resolve()
    pyproject = root / "pyproject.toml"
    table = render("pyproject.toml.template", pythonpath=json.dumps([".", "src"] if (root / "src").is_dir() else ["."]))
    contents = {
        **{root / "contracts" / "schema" / path.name: path.read_text("utf-8") for path in _schemas()},
        root / "falsifiers" / "__init__.py": render("falsifiers.py.template"),
        root / "evidence" / ".gitignore": render("evidence.gitignore.template"),
    }
    additions: dict[Path, str] = {}
    if pyproject.exists():
        additions[pyproject] = _addition(pyproject, table)
    else:
        contents[pyproject] = table
    try:
        write_all(contents, additions)
    except OSError as error:
        raise click.ClickException(f"{error}; move that file, or write [tool.harness] by hand") from error
    for path in contents:
        click.echo(f"wrote {path.relative_to(root)}")
    for path in additions:
        click.echo(f"added [tool.harness] to {path.relative_to(root)}")
    click.echo("\nNow make a claim: harness new F-AREA-CLAIM-001")
    return ExitStatus.PASS


def _schemas() -> list[Path]:
    """Return the schemas of our formats. A project has copies for its editors; the harness reads its own."""
    return sorted(schema_folder().glob("*.schema.json"))


def _addition(pyproject: Path, table: str) -> str:
    """Return the text to append to a pyproject.toml, with its line ends: the table, and no other change."""
    try:
        before = pyproject.read_bytes().decode("utf-8")
        document = tomllib.loads(before)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{pyproject} cannot be read: {error}") from error
    tool = document.get("tool", {})
    if isinstance(tool, dict) and "harness" in tool:
        raise click.ClickException(f"{pyproject} already has [tool.harness]: this is a project")
    newline = "\r\n" if "\r\n" in before else "\n"
    gap = "" if not before else newline if before.endswith("\n") else 2 * newline
    addition = gap + table.replace("\n", newline)
    try:
        after = tomllib.loads(before + addition)
        grown = {**document, "tool": {**tool, "harness": after["tool"]["harness"]}} == after
    except (ValueError, TypeError):
        grown = False
    if not grown:
        raise click.ClickException(
            f"{pyproject} defines `tool` in a way that allows no further table; write it as [tool]"
        )
    return addition
