"""`harness lint`: shows that contracts are sound, can be satisfied, and can be violated."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import click

from harness.base import strictjson
from harness.base.json_dataclass import JsonDataclass
from harness.base.plugins import plugins
from harness.base.shortening import near_path
from harness.base.vocabulary import ExitStatus
from harness.contract import Contract
from harness.contract.claim_folder import contract_of
from harness.contract.imports import imported_files
from harness.contract.project import Project
from harness.lint.linter import UNDECIDED, Finding, Severity, lint, undecided
from harness.lint.patches import about_patches
from harness.machine.limited_process import Limits, Stopped, decoded, isolated_all
from harness.report.messages.number_text import counted
from harness.report.terminal.printing import tell, tell_json

__all__ = ["LIMITS", "Check", "Report", "command", "files_at", "tell_report"]

Check = Callable[[Contract, Project], Iterable[Finding]]
"""The type of entry points of the group `harness.lint`: returns a tool's findings on a contract."""

LIMITS = Limits(seconds=60.0, answer_bytes=64 << 20)
"""Limits of the lint of one contract. Those of this project take 0.2 s each."""


@dataclass(frozen=True)
class Report(JsonDataclass):
    """The findings on one file."""

    file: str
    state: str
    """refused, unsound, undecided, warnings or sound."""
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, file: Path, findings: Iterable[Finding]) -> Report:
        """Return the report on a file that could be read: errors first."""
        ordered = tuple(sorted(findings, key=lambda finding: finding.severity is Severity.WARNING))
        if any(finding.severity is Severity.ERROR for finding in ordered):
            return cls(str(file), "unsound", ordered)
        if any(finding.rule == UNDECIDED for finding in ordered):
            return cls(str(file), "undecided", ordered)
        return cls(str(file), "warnings" if ordered else "sound", ordered)


@click.command("lint")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paths: tuple[Path, ...], as_json: bool) -> ExitStatus:
    """Check contracts: files, or folders of them; all of the project's if no PATH is given.

    lint makes the checks that every command makes. It also searches for an observation that satisfies the contract and,
    for each clause, for one that violates this clause. It checks equivalent.json next to a contract, too, and it
    compares bounds with figures.json of the family. The exit status is 2 if there is an error, and 3 if a contract
    needs more time or memory than lint spends on one: it is undecided then.
    """
    project = Project.find()
    reports = list(_reports(project, files_at(project, paths)))
    if as_json:
        tell_json({"format": 1, "contracts": [report.to_json() for report in reports]})
    else:
        for report in reports:
            tell_report(report)
        tell(_summary(reports))
    if any(report.state in ("refused", "unsound") for report in reports):
        return ExitStatus.REFUSED
    decided = reports and not any(report.state == "undecided" for report in reports)
    return ExitStatus.PASS if decided else ExitStatus.NOT_MEASURED


def files_at(project: Project, paths: tuple[Path, ...]) -> list[Path]:
    """Return the contracts in files and folders; all of the project's if there is no path."""
    within = [project.files(path) if path.is_dir() else [contract_of(path)] for path in paths]
    # A file itself can be a link, also one to itself.
    candidates = (file for files in (within if paths else [project.files()]) for file in files)
    return list(dict.fromkeys(Path(os.path.realpath(file.parent)) / file.name for file in candidates))


def _reports(project: Project, files: list[Path]) -> Iterator[Report]:
    """Yield a report on each file. What the loader refuses is a finding too."""
    contracts, refused = project.load_all(files)
    loaded = {contract.path: contract for contract in contracts}
    refusals = {
        error.path: tuple(Finding("refused", Severity.ERROR, *astuple(problem)) for problem in error.problems)
        for error in refused
    }
    linted = _linted(project, [loaded[file] for file in files if file not in refusals])
    for file in files:
        if file in refusals:
            yield Report(str(file), "refused", refusals[file])
        else:
            yield Report.of(file, next(linted))


def _linted(project: Project, contracts: list[Contract]) -> Iterator[tuple[Finding, ...]]:
    """Yield the findings on each contract. Each is checked in a child process within LIMITS."""
    checks: list[Check] = [plugin.load() for plugin in plugins("harness.lint").values()]

    def work(contract: Contract) -> bytes:
        tempfile.tempdir = folder  # a process that is stopped cannot remove its own files
        added = [finding for check in checks for finding in check(contract, project)]
        findings = [*added, *lint(contract, project.search)]
        findings += about_patches(contract, project.search_of(contract.path))
        lint_findings = [finding.to_json() for finding in findings]
        return strictjson.dumps(lint_findings).encode("utf-8", "backslashreplace")

    def works() -> Iterator[Callable[[], bytes]]:
        for contract in contracts:
            imported_files(contract.falsifier, project.search_of(contract.path))  # all forks know the files it parses
            yield partial(work, contract)

    with tempfile.TemporaryDirectory(prefix="harness-lint-") as folder:
        for contract, answer in zip(contracts, isolated_all(works(), LIMITS, os.cpu_count() or 1), strict=True):
            if isinstance(answer, Stopped):
                lint_findings = [undecided(f"its check {answer}")]
            else:
                lint_findings = [Finding.from_json(document) for document in decoded(answer)]
            yield tuple(finding for finding in lint_findings if not _is_ignored(project, contract, finding))


def _is_ignored(project: Project, contract: Contract, finding: Finding) -> bool:
    claims = project.ignored.get(finding.rule, ())
    return finding.severity is Severity.WARNING and any(fnmatchcase(contract.id, claim) for claim in claims)


def tell_report(report: Report) -> None:
    """Print the findings of a report."""
    file = near_path(Path(report.file))
    for finding in report.findings:
        tell(f"{file}: {finding.severity}: {finding.pointer or '/'}: {finding.message}")
        tell(f"    {finding.remedy} [{finding.rule}]")
        if finding.example is not None:
            click.echo(f"    example: {_shortened(strictjson.dumps(strictjson.tag_nonfinite(finding.example)))}")


def _shortened(text: str, limit: int = 600) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters; --json prints all)"


def _summary(reports: list[Report]) -> str:
    states = Counter(report.state for report in reports)
    sound = states["sound"] + states["warnings"]
    bad = states["refused"] + states["unsound"]
    count = len(reports)
    undecided = f", {states['undecided']} undecided" if states["undecided"] else ""
    return f"{counted(count, 'contract')}: {sound} sound, {bad} refused, {states['warnings']} with warnings{undecided}"
