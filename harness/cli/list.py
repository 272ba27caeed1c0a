"""`harness list`: lists the claims of the project."""

from __future__ import annotations

import click

from harness.base import strictjson
from harness.base.vocabulary import ExitStatus, Status
from harness.contract.installed import root_of
from harness.contract.project import Project
from harness.evidence.known_statuses import known_statuses
from harness.report.terminal.printing import STATUS_COLOURS, tell, tell_json
from harness.report.words.number_text import counted

__all__ = ["command"]

UNKNOWN = "UNKNOWN"
"""The status of a claim whose contract is refused."""
_MEANINGS = {**{str(status): status.meaning for status in Status}, UNKNOWN: "its contract is refused: `harness lint`"}
WIDEST = len("DISCHARGED")

_LONGEST = 300
"""Characters of an entry, which is not checked here. Lint allows fewer."""


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> ExitStatus:
    """List the installed claims and the project's own, with the status that all evidence gives them.

    The line after the claims of a folder names the folder. The last lines say what each status means.

    Contracts are read, not checked: `harness lint` does that. The status is that of `harness status`, remembered until
    a contract, a source or the evidence changes.
    """
    project = Project.find()
    rows: list[dict[str, str]] = []
    refused: list[str] = []
    for path in project.known():
        root = root_of(path)
        folder = project.contracts if root is None else root / "contracts"
        try:
            document = strictjson.load(path)
            row = {name: str(document[name])[:_LONGEST] for name in ("id", "issue", "spec", "title")}
            rows.append({**row, "from": str(folder)})
        except (OSError, strictjson.JsonError, KeyError, TypeError) as error:
            refused.append(f"{path}: not a contract: {error}")
    known = known_statuses(project, lambda: _statuses(project))
    rows = [{**row, "status": known.get(row["id"], UNKNOWN)} for row in rows]
    if as_json:
        tell_json({"format": 1, "claims": rows})
    else:
        own = str(project.contracts)
        for place in sorted({row["from"] for row in rows} or {own}, key=lambda one: (one == own, one)):
            found = [row for row in rows if row["from"] == place]
            _show(found)
            tell(f"{counted(len(found), 'claim')} {'under' if place == own else 'installed in'} {place}")
        _explain({row["status"] for row in rows})
    for line in refused:
        tell(line, err=True)
    if refused:
        return ExitStatus.REFUSED
    return ExitStatus.PASS if rows else ExitStatus.NOT_MEASURED


def _statuses(project: Project) -> dict[str, str]:
    from harness.evidence.survey import Survey

    return dict(Survey.of(project).by_id)


def _show(rows: list[dict[str, str]]) -> None:
    """Print the claims by spec and issue, each with its status."""
    groups: dict[str, list[dict[str, str]]] = {}
    for row in sorted(rows, key=lambda row: (row["spec"], row["issue"])):
        groups.setdefault(f"{row['spec']}, {row['issue']}", []).append(row)
    widest = max((len(row["id"]) for row in rows), default=0)
    for title, group in groups.items():
        tell(title, "bold")
        for row in group:
            status = row["status"]
            start = f"  {status:<{WIDEST}}  {row['id']:<{widest}}  "
            tell(start + row["title"], STATUS_COLOURS.get(status, ""), word=status, hanging=len(start))


def _explain(words: set[str]) -> None:
    """Print the meaning of each status that occurs."""
    for word, meaning in _MEANINGS.items():
        if word in words:
            start = f"  {word:<{WIDEST}}  "
            tell(start + meaning, "dim", hanging=len(start))
