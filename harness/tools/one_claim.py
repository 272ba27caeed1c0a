"""What the tools share that make a claim for one call and run it, in any folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from harness.base.vocabulary import ExitStatus
from harness.cli.run import perform
from harness.cli.run_options import RunOptions
from harness.contract.project import Project
from harness.report.terminal.printing import tell_all
from harness.running.events import ClaimFinished, Event
from harness.running.request import RunRequest

__all__ = ["claim_options", "performed", "project_here", "request_of"]

_OPTIONS = (
    click.option("--no-mutants", is_flag=True, help="Plant no defects; a PASS is then unproven."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all that is drawn."),
    click.option("-j", "--jobs", type=click.IntRange(min=1), help="Trials side by side; one by default."),
    click.option("--evidence", type=click.Path(path_type=Path), metavar="DIR", help="Where the bundle goes."),
    click.option("--json", "json_file", metavar="FILE|-", help="Also write the record as JSON; - is standard output."),
    click.option("-v", "--verbose", is_flag=True, help="Show every clause."),
)


def claim_options(decorated: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a run of one claim."""
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def project_here() -> Project:
    """Return the project of the current folder; without one, the folder itself."""
    root = Path.cwd()
    return Project.around() or Project(root, root / "contracts", root / "evidence", (root,))


def request_of(evidence: Path | None, seed: int, jobs: int | None, no_mutants: bool, **more: Any) -> RunRequest:
    """Return the request of these options, and more of its fields."""
    command = shlex.join(["harness", *sys.argv[1:]])
    return RunRequest(evidence=evidence, seed=seed, jobs=jobs or 1, mutants=not no_mutants, command=command, **more)


def performed(
    given: RunOptions, project: Project, request: RunRequest, lines: Callable[[Path], Iterator[str]]
) -> ExitStatus:
    """Run the claim, and print what `lines` says of its bundle."""
    bundles: list[Path] = []

    def keep(event: Event) -> None:
        if isinstance(event, ClaimFinished) and event.bundle is not None:
            bundles.append(event.bundle)

    status = perform(given, project, request, watch=keep)
    for bundle in bundles:
        tell_all([*lines(bundle)], err=given.json_file == "-")
    return status
