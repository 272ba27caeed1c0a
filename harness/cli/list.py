"""`harness list`: lists the claims of the project."""

from __future__ import annotations

import click

from harness.base import strictjson
from harness.base.vocabulary import ExitStatus
from harness.contract.project import Project
from harness.report.escaping import printable

__all__ = ["command"]


_LONGEST = 300
"""Characters of an entry, which is not checked here. Lint allows fewer."""


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> ExitStatus:
    """List the project's claims. Contracts are read, not checked: `harness lint` does that."""
    project = Project.find()
    rows: list[dict[str, str]] = []
    refused: list[str] = []
    for path in project.files():
        try:
            document = strictjson.load(path)
            rows.append({name: str(document[name])[:_LONGEST] for name in ("id", "issue", "spec", "title")})
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
        click.echo(f"{len(rows)} claim{'s' if len(rows) != 1 else ''} under {project.contracts}")
    for line in refused:
        click.echo(printable(line), err=True)
    if refused:
        return ExitStatus.REFUSED
    return ExitStatus.PASS if rows else ExitStatus.NOT_MEASURED
