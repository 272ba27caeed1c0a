"""`harness runs`: the runs that were detached."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from harness.base.vocabulary import ExitStatus
from harness.contract.project import Project
from harness.report.terminal.printing import tell
from harness.running.slurm.detached import saved_runs

__all__ = ["command"]


@click.command("runs")
@click.option(
    "--evidence", type=click.Path(path_type=Path), help="Where their bundles go, instead of the project's evidence/."
)
def command(evidence: Path | None) -> ExitStatus:
    """List the runs that `harness run --executor slurm --detach` submitted, the newest last.

    Each line counts the claims by verdict, and those without a verdict by the state of their job.
    """
    place = evidence or Project.find().evidence
    runs = list(saved_runs(place))
    if not runs:
        tell(f"no detached runs in {place}")
    for run in runs:
        counts = Counter(task.verdict() or task.state() for task in run.tasks().values())
        tell(f"{run.name}  {', '.join(f'{count} {what}' for what, count in sorted(counts.items()))}")
    return ExitStatus.PASS
