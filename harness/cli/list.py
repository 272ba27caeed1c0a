"""`harness list`: lists the claims of the project."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from harness.base import strictjson
from harness.base.vocabulary import ExitStatus
from harness.contract.installed import root_of
from harness.contract.project import Project
from harness.report.escaping import printable

__all__ = ["command"]


_LONGEST = 300
"""Characters of an entry, which is not checked here. Lint allows fewer."""


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> ExitStatus:
    """List the project's claims and the installed ones. Contracts are read, not checked: `harness lint` does that."""
    project = Project.find()
    rows: list[dict[str, str]] = []
    refused: list[str] = []
    places: Counter[Path] = Counter({project.contracts: 0})
    for path in project.known():
        try:
            document = strictjson.load(path)
            root = root_of(path)
            place = project.contracts if root is None else root / "contracts"
            row = {name: str(document[name])[:_LONGEST] for name in ("id", "issue", "spec", "title")}
            rows.append({**row, "from": str(place)})
            places[place] += 1
        except (OSError, strictjson.JsonError, KeyError, TypeError) as error:
            refused.append(f"{path}: not a contract: {error}")
    if as_json:
        click.echo(strictjson.dumps(rows, indent=2))
    else:
        widths = [max((len(row[name]) for row in rows), default=0) for name in ("id", "issue", "spec")]
        for row in rows:
            click.echo(
                printable(
                    f"{row['id']:<{widths[0]}}  {row['issue']:<{widths[1]}}  {row['spec']:<{widths[2]}}  {row['title']}"
                )
            )
        for place, count in places.items():
            ours = place == project.contracts
            if count or (ours and not rows):
                click.echo(
                    f"{count} {'claim' if count == 1 else 'claims'} {'under' if ours else 'installed in'} {place}"
                )
    for line in refused:
        click.echo(printable(line), err=True)
    if refused:
        return ExitStatus.REFUSED
    return ExitStatus.PASS if rows else ExitStatus.NOT_MEASURED
