"""`harness list`: lists the claims of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.base import strictjson
from harness.base.vocabulary import ExitStatus
from harness.contract.installed import root_of
from harness.contract.project import Project
from harness.report.messages.number_text import counted
from harness.report.terminal.printing import tell, tell_json

if TYPE_CHECKING:
    from harness.contract.other_subject import NamedSubject

__all__ = ["command"]

_LONGEST = 300
"""Maximum characters of an entry, which is not validated here."""


@click.command("list")
@click.option(
    "--subject",
    "kind",
    metavar="KIND",
    help="List only the claims that take such a subject, as `harness run --subject KIND:…` does.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(kind: str | None, as_json: bool) -> ExitStatus:
    """List the installed claims and the project's own.

    The line after the claims of a folder names the folder.

    Contracts are read, not checked: `harness lint` does that. `harness status` says what the evidence gives them.
    """
    project = Project.find()
    taken = None if kind is None else _kind(kind)
    rows: list[dict[str, str]] = []
    refused: list[str] = []
    for path in project.known():
        root = root_of(path)
        folder = project.contracts if root is None else root / "contracts"
        try:
            document = strictjson.load(path)
            if taken is not None and not taken.is_taken(str(document["falsifier"]), path, project):
                continue
            row = {name: str(document[name])[:_LONGEST] for name in ("id", "issue", "spec", "title")}
            rows.append({**row, "from": str(folder)})
        except (OSError, strictjson.JsonError, KeyError, TypeError) as error:
            refused.append(f"{path}: not a contract: {error}")
    if as_json:
        tell_json({"format": 1, "claims": rows})
    else:
        own = str(project.contracts)
        for place in sorted({row["from"] for row in rows} or {own}, key=lambda origin: (origin == own, origin)):
            group = [row for row in rows if row["from"] == place]
            _show(group)
            tell(f"{counted(len(group), 'claim')} {'under' if place == own else 'installed in'} {place}")
    for line in refused:
        tell(line, err=True)
    if refused:
        return ExitStatus.REFUSED
    return ExitStatus.PASS if rows else ExitStatus.NOT_MEASURED


def _kind(name: str) -> type[NamedSubject]:
    from harness.contract.other_subject import kind, kinds  # it loads plugins, which a list without the option has not

    if name not in (known := kinds()):
        raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="--subject")
    return kind(name)


def _show(rows: list[dict[str, str]]) -> None:
    """Print the claims by spec and issue."""
    groups: dict[str, list[dict[str, str]]] = {}
    for row in sorted(rows, key=lambda row: (row["spec"], row["issue"])):
        groups.setdefault(f"{row['spec']}, {row['issue']}", []).append(row)
    widest = max((len(row["id"]) for row in rows), default=0)
    for title, group in groups.items():
        tell(title, "bold")
        for row in group:
            start = f"  {row['id']:<{widest}}  "
            tell(start + row["title"], hanging=len(start))
