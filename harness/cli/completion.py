"""What a shell completes: the ids of claims, and bundles. Options with fixed values, such as --profile, need nothing.

The metavar of an argument says what it takes, so a new command is completed without a word about it.

click writes the scripts: `_HARNESS_COMPLETE=bash_source harness` prints the one for bash (docs/commands.md).
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from harness.base import strictjson
from harness.contract.project import Project, ProjectError

__all__ = ["completed"]

_DEPTH = "*/*/*/record.json"
"""Bundles in the folder of evidence: issue, claim, run."""


def completed(command: click.Command) -> click.Command:
    """Return the command, with arguments that are completed."""
    for parameter in command.params:
        find = _BY_METAVAR.get(parameter.metavar or "") if isinstance(parameter, click.Argument) else None
        if find is not None:
            parameter.shell_complete = find  # type: ignore[method-assign, assignment]
    return command


def _claim_ids(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the ids of all known claims that begin like this, with their titles."""
    if (project := _project()) is None:
        return []
    found = {path.stem: path for path in project.known() if path.stem.startswith(incomplete)}
    return [CompletionItem(name, help=_title(path)) for name, path in sorted(found.items())]


def _bundles(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the bundles of the project whose path or claim begins like this; else paths, from the shell itself."""
    project = _project()
    places = [] if project is None else sorted(place.parent for place in project.evidence.glob(_DEPTH))
    found = [
        CompletionItem(path)
        for place in places
        if (path := os.path.relpath(place)).startswith(incomplete) or place.parent.name.startswith(incomplete or "/")
    ]
    return found or [CompletionItem(incomplete, type="file")]


def _claims_and_bundles(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return both, for commands that take either."""
    return _claim_ids(context, incomplete) or _bundles(context, incomplete)


_BY_METAVAR = {
    "ID": _claim_ids,
    "ID…": _claim_ids,
    "[ID]…": _claim_ids,
    "BUNDLE": _bundles,
    "BUNDLE…": _bundles,
    "PATH…": _bundles,
    "DIR…": _bundles,
    "ID | A B": _claims_and_bundles,
}


def _project() -> Project | None:
    """Return the project of the current folder. A shell shows no error while it completes."""
    try:
        return Project.around()
    except ProjectError:
        return None


def _title(path: Path) -> str | None:
    try:
        return str(strictjson.load(path)["title"])
    except (OSError, strictjson.JsonError, LookupError, TypeError):
        return None
