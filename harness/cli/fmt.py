"""`harness fmt`: gives all contracts the same layout."""

from __future__ import annotations

from pathlib import Path

import click

from harness.base import regular_file, strictjson
from harness.base.vocabulary import ExitStatus
from harness.contract.layout import laid_out
from harness.contract.project import Project
from harness.report.terminal.printing import tell

__all__ = ["command"]


@click.command("fmt")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file would change.")
def command(paths: tuple[Path, ...], check: bool) -> ExitStatus:
    """Lay out contract files: files, or folders of them; all of the project's if no PATH is given.

    Keys stay in their order. A changed layout is a changed file: evidence of the claim becomes STALE.
    """
    project = Project.find()
    files = [file for path in paths for file in (project.files(path) if path.is_dir() else [path])]
    changed = 0
    for file in files if paths else project.files():
        try:
            text = regular_file.read(file)
            better = laid_out(strictjson.loads(text)).encode()
        except (OSError, strictjson.JsonError) as error:
            raise click.ClickException(f"{file}: {error}") from error
        if text != better:
            changed += 1
            tell(f"{'would change' if check else 'changed'} {file}")
            if not check:
                file.write_bytes(better)
    return ExitStatus.FAIL if check and changed else ExitStatus.PASS
