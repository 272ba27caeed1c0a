"""`harness show ID`: what a claim says, what will run, and what would refute it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import click

from harness import strictjson
from harness.contract import Contract, Profile
from harness.judge import builtin_clauses
from harness.machine.host import Host, probe
from harness.machine.requirements import shortfalls
from harness.project import Project
from harness.report import figures

__all__ = ["command"]


@click.command("show")
@click.argument("identifier", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the contract as JSON.")
def command(identifier: str, as_json: bool) -> None:
    """Show a claim: its text and sources, what will run here, and what would refute it."""
    project = Project.find()
    contract = project.contract(identifier)
    if as_json:
        click.echo(strictjson.dumps(contract.document, indent=2))
    else:
        click.echo("\n".join(_page(contract, probe(project.root))))


def _page(contract: Contract, host: Host) -> Iterator[str]:
    yield f"{contract.id}  {contract.title}"
    yield f"{contract.spec}, {contract.issue}; {contract.path}"
    yield ""
    yield from _paragraph(contract.claim)
    yield ""
    for source in contract.document["sources"]:
        yield from _paragraph("from " + ", ".join(str(source[key]) for key in ("uri", "locator") if key in source))
    if contract.target:
        yield f"speaks of: {', '.join(f'{name} {wanted}' for name, wanted in contract.target.items())}"
    yield ""
    yield "What runs"
    yield f"  {contract.falsifier} against {contract.subject}"
    yield f"  on a device {'of its own' if contract.exclusive else 'that other claims may share'}"
    for profile in contract.profiles.values():
        yield from _profile(profile, host, 1 + len(contract.mutants))
    yield ""
    yield "What would refute it"
    for clause in contract.clauses:
        yield f"  {clause.id:<40} unless {clause.bound}{' ' + clause.unit if clause.unit else ''}"
    for rule in contract.rules:
        yield f"  {rule.id:<40} unless {rule.bound}"
        yield from _paragraph(rule.message + (f" [{rule.source}]" if rule.source else ""), indent=6)
    yield f"  and of every claim: {', '.join(builtin_clauses(contract))}"
    yield ""
    yield "What the falsifier must kill first"
    for mutant in contract.mutants:
        needs = f" (needs {_requirements(mutant.requires)})" if mutant.requires else ""
        yield f"  {mutant.id}{needs}: must fail on {', '.join(mutant.violates)}"
        yield from _paragraph(mutant.defect, indent=6)
        for name, ratios in mutant.ratios.items():
            measured = ", ".join(f"{ratio:.3g} times the threshold of {clause}" for clause, ratio in ratios.items())
            yield from _paragraph(f"measured ({name}): {measured}", indent=6)
    yield ""
    yield f"Run it: harness run {contract.id}"


def _profile(profile: Profile, host: Host, trials: int) -> Iterator[str]:
    lacks = shortfalls(profile.requires, host)
    here = f"not here: {'; '.join(lacks)}" if lacks else "runs here"
    yield f"  {profile.name}: needs {_requirements(profile.requires)}; {here}"
    yield f"    at most {figures.duration(profile.seconds)} a trial, {trials} trials with the mutants"
    yield from _paragraph(
        ", ".join(f"{name} {figures.value(value)}" for name, value in profile.parameters.items()), indent=4
    )


def _requirements(requires: Any) -> str:
    return ", ".join(f"{name} {figures.value(value)}" for name, value in requires.items())


def _paragraph(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent=" " * indent, subsequent_indent=" " * indent)
