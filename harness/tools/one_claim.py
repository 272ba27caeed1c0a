"""What the tools share that make a claim for one call and run it, in any folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

from harness.base.vocabulary import ExitStatus
from harness.cli.run import perform
from harness.cli.run_options import RunOptions
from harness.contract.project import Project
from harness.report.terminal.printing import tell_all
from harness.running.events import ClaimFinished, Event
from harness.running.request import RunRequest

__all__ = ["claim_options", "performed", "project_here", "request_of"]

_OPTIONS = ("no_mutants", "seed", "jobs", "evidence", "json_file", "verbose")


def claim_options(*more: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add options of `harness run`, and more by the names of their fields. The command takes them as `given`."""
    names = {*_OPTIONS, *more}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def called(**values: Any) -> Any:
            return command(given=RunOptions(**{name: values.pop(name) for name in names}), **values)

        decorated: Callable[..., Any] = called
        for option in reversed(fields(RunOptions)):
            if option.name in names:
                decorated = option.metadata["declaration"](decorated)
        return decorated

    return decorate


def project_here(root: Path | None = None) -> Project:
    """Return the project of a folder, by default of the current one; without one, the folder itself."""
    root = root or Path.cwd()
    return Project.around(root) or Project(root, root / "contracts", root / "evidence", (root,))


def request_of(given: RunOptions, **more: Any) -> RunRequest:
    """Return the request of these options, and more of its fields."""
    return RunRequest(
        evidence=given.evidence,
        seed=given.seed,
        jobs=given.jobs or 1,
        isolate=given.isolate,
        mutants=not given.no_mutants,
        command=shlex.join(["harness", *sys.argv[1:]]),
        **more,
    )


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
