"""`harness runs`: the runs that were detached."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import click

from harness.base.vocabulary import ExitStatus
from harness.contract import ContractError
from harness.contract.project import Project, ProjectError
from harness.report.terminal.printing import tell
from harness.running.slurm.detached import RunFileError, Task, load_run, run_files

__all__ = ["command"]


@click.command("runs")
@click.option(
    "--evidence", type=click.Path(path_type=Path), help="Where their bundles go, instead of the project's evidence/."
)
def command(evidence: Path | None) -> ExitStatus:
    """List the runs that `harness run --executor slurm --detach` submitted, the newest last.

    Each line counts the claims by the verdict of their bundle, and those without a sound bundle by the state of their
    job. A file in .runs/ that is not that of a run is named, and the exit status is 2.
    """
    project = Project.find()
    place = evidence or project.evidence
    files, status = run_files(place), ExitStatus.PASS
    if not files:
        tell(f"no detached runs in {place}")
    for path in files.values():
        try:
            run = load_run(path)
        except RunFileError as error:
            tell(f"harness: {error}; move it away", err=True)
            status = ExitStatus.REFUSED
            continue
        counts = Counter(_result(project, place, run.name, task) for task in run.tasks(place).values())
        tell(f"{run.name}  {', '.join(f'{count} {what}' for what, count in sorted(counts.items()))}")
    return status


def _result(project: Project, evidence: Path, name: str, task: Task) -> str:
    with suppress(ProjectError, ContractError, OSError):
        if verdict := task.verdict(evidence, project.contract(task.claim), name):
            return verdict
    return task.state()
