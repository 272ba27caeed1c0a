"""`harness figures`: compares figures and quotes of contracts with the documents that they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

import click

from harness.base.vocabulary import ExitStatus
from harness.cli.lint import Report, files_at, tell_report
from harness.contract import Contract, ContractError
from harness.contract.claim_folder import family_of
from harness.contract.contract_annotations import FIGURES
from harness.contract.project import Project
from harness.lint.linter import Finding, Severity
from harness.report.terminal.printing import tell, tell_json
from harness.tools.figures.bounds import about_figures, unused_figures
from harness.tools.figures.documents import Texts, TextsError, misplaced_figures, misquotes
from harness.tools.figures.figures import Figures, figures_of

__all__ = ["command"]


@click.command("figures", short_help="compare figures and quotes with the documents they come from")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--sources",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of documents.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paths: tuple[Path, ...], sources: Path | None, as_json: bool) -> ExitStatus:
    """Compare the figures of contracts with the documents that they are from: files, folders, or the whole project.

    figures compares bounds with figures.json of the family, as lint does. It also finds figures that no contract of the
    family names, and figures and quotes that are not in the documents of DIR. The exit status is 2 if there is an
    error.
    """
    project = Project.find()
    try:
        texts = Texts.in_folder(sources) if sources is not None else None
    except TextsError as error:
        raise click.UsageError(str(error)) from error
    contracts, refused = project.load_all(files_at(project, paths))
    if refused:
        raise click.UsageError(f"{refused[0].path} is refused: harness lint says why")
    families: dict[Path, list[Contract]] = {}
    for contract in contracts:
        families.setdefault(family_of(contract.path), []).append(contract)
    reports: list[Report] = []
    compared: list[Figures] = []
    for folder, members in families.items():
        try:
            figures = figures_of(folder)
        except ContractError as error:
            findings = [Finding("figures-refused", Severity.ERROR, *astuple(problem)) for problem in error.problems]
            reports.append(Report.of(folder / FIGURES, findings))
            continue
        reports += [Report.of(member.path, _about_contract(member, figures, texts)) for member in members]
        if figures is not None:
            compared.append(figures)
            is_whole = len(members) == len(project.files(folder))
            reports.append(Report.of(folder / FIGURES, _about_figures(figures, members if is_whole else (), texts)))
    if as_json:
        tell_json({"format": 1, "files": [report.to_json() for report in reports]})
    else:
        for report in reports:
            tell_report(report)
        tell(_summary(compared, contracts, texts))
    is_refused = any(report.state == "unsound" for report in reports)
    return ExitStatus.REFUSED if is_refused else ExitStatus.PASS


def _about_contract(contract: Contract, figures: Figures | None, texts: Texts | None) -> Iterator[Finding]:
    yield from about_figures(contract, figures)
    if figures is not None and texts is not None:
        yield from misquotes(contract, figures, texts)


def _about_figures(figures: Figures, all_contracts: Sequence[Contract], texts: Texts | None) -> Iterator[Finding]:
    """Find what is wrong with a figures.json. Without all contracts of its folder, no figure is unused."""
    if all_contracts:
        yield from unused_figures(figures, all_contracts)
    if texts is not None:
        yield from misplaced_figures(figures, texts)


def _summary(all_figures: Sequence[Figures], contracts: Sequence[Contract], texts: Texts | None) -> str:
    """Say how many figures were compared with documents, and how many have none to be compared with."""
    figures = [figure for each in all_figures for figure in each.named.values()]
    unchecked = sum(bool(figure.document.unchecked) for figure in figures)
    quotes = sum("quote" in source for contract in contracts for source in contract.document["sources"])
    count = sum(texts is not None and texts.of(figure.document) is not None for figure in figures)
    return f"figures: {count} compared with documents, {unchecked} of documents without a text; {quotes} quotes"
