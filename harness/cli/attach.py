"""`harness attach`: follows a run that was detached."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from harness.base.vocabulary import ExitStatus
from harness.cli.run import carry_out
from harness.cli.run_options import saved_options
from harness.contract.project import Project
from harness.running.slurm.detached import RunFileError, UnknownRunError, saved

__all__ = ["command"]


@click.command("attach")
@click.argument("run", required=False)
@click.option(
    "--evidence", type=click.Path(path_type=Path), help="Where its bundles go, instead of the project's evidence/."
)
def command(run: str | None, evidence: Path | None) -> ExitStatus:
    """Follow RUN, which `harness run --executor slurm --detach` submitted; without RUN, the newest.

    What the run has printed so far comes first. The reports and the exit status are those that `harness run` would have
    had. Ctrl-C leaves the jobs alone.
    """
    project = Project.find()
    try:
        place = evidence or project.evidence
        found = saved(place, run)
        options = saved_options(found.options, project.root)
    except UnknownRunError as error:
        raise click.UsageError(str(error)) from error
    except RunFileError as error:
        raise click.ClickException(f"{error}; move it away") from error
    except ValueError as error:
        raise click.ClickException(f"the file of the run {found.name} has other options than a run: {error}") from error
    given = replace(
        options,
        ids=tuple(found.tasks(place)),
        evidence=place,
        everything=False,
        issue=None,
        spec=None,
        stale=False,
        scratch=False,
        unless=None,
        event_lines=False,
        detach=False,
        shards=None,
        executor="local",  # the jobs run already: nothing is submitted, and nothing runs here
        partition=None,
        slurm_args="",
        isolate=False,
        require_gpu=False,
        gpus=None,
    )
    return carry_out(given, project, found)
