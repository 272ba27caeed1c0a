"""`harness trainer check FILE`: what an external trainer's file matches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harness.authoring.faults import NotMeasured
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import ExitStatus
from harness.cli.options import named_texts
from harness.contract.installed import or_installed
from harness.report.terminal.printing import tell_all
from harness.tools.step_function import document_of, time_limit
from harness.tools.trainer.file_check import check_log, check_run
from harness.tools.trainer.text import lines
from harness.tools.trainer.trainer_file import load

__all__ = ["command"]


@click.group("trainer", short_help="show what an external trainer's file matches")
def command() -> None:
    """Work on the TOML files that describe external trainers."""


@command.command("check")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--run", "folder", metavar="DIR", type=click.Path(path_type=Path), help="The directory of a finished run."
)
@click.option("--log", metavar="LOG", type=click.Path(path_type=Path), help="A file with a run's output.")
@click.option("-P", "parameters", multiple=True, metavar="KEY=VALUE", help="A placeholder's value.")
@time_limit
def check(file: Path, folder: Path | None, log: Path | None, parameters: Sequence[str], seconds: float) -> ExitStatus:
    """Check a trainer's file, and show what it matches in a run's directory or in a log.

    Nothing is run and nothing is judged. Exit status: 0 if the file is valid and matches, 1 if something that a claim
    needs is not matched, 2 if the file or an option is refused.
    """
    if folder is not None and log is not None:
        raise click.UsageError("--run has logs of its own; name either --run or --log")
    if folder is not None and not folder.is_dir():
        raise click.BadParameter(f"there is no directory {folder}", param_hint="--run")
    given = named_texts(parameters, "-P")

    def matched() -> JsonObject:
        try:
            trainer = load(or_installed(file))
            if folder is None and log is None:
                valid = f"{file} is valid; name a run with --run DIR or --log LOG to see what it matches"
                return {"lines": [valid], "matches": True}
            matches = check_log(trainer, [log]) if log is not None else check_run(trainer, Path(folder or "."), given)
        except NotMeasured as error:
            raise click.ClickException(str(error)) from error
        return {"lines": list(lines(matches)), "matches": not matches.problems}

    document = document_of(matched, seconds)
    tell_all(document["lines"])
    return ExitStatus.PASS if document["matches"] else ExitStatus.FAIL
