"""What a shell completes: the ids of claims, and bundles. Options with fixed values, such as --profile, need none.

click writes the scripts: `_HARNESS_COMPLETE=bash_source harness` prints the one for bash (docs/running.md).
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from harness.base import strictjson
from harness.contract.project import Project, ProjectError

__all__ = ["bundles", "claim_ids", "claims_and_bundles"]

_DEPTH = "*/*/*/record.json"
"""Bundles in the folder of evidence: issue, claim, run."""


def claim_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of the project's claims that begin like this, with their titles."""
    if (project := _project()) is None:
        return []
    return [
        CompletionItem(path.stem, help=_title(path)) for path in project.files() if path.stem.startswith(incomplete)
    ]


def bundles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the bundles of the project whose path or claim begins like this; else folders, from the shell itself."""
    project = _project()
    places = [] if project is None else sorted(place.parent for place in project.evidence.glob(_DEPTH))
    found = [
        CompletionItem(path)
        for place in places
        if (path := os.path.relpath(place)).startswith(incomplete) or place.parent.name.startswith(incomplete or "/")
    ]
    return found or [CompletionItem(incomplete, type="dir")]


def claims_and_bundles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return both, for commands that take either."""
    return claim_ids(context, parameter, incomplete) or bundles(context, parameter, incomplete)


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
