"""`harness lint`: shows that contracts are sound, can be satisfied, and can be violated."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import click

from harness.base import strictjson
from harness.base.schemas import Problem
from harness.base.vocabulary import ExitStatus
from harness.contract import Contract
from harness.contract.project import Project
from harness.evidence.limited_process import Limits, Stopped, isolated_all
from harness.lint.linter import UNDECIDED, Severity, lint, undecided
from harness.report.number_text import counted
from harness.report.terminal import tell, tell_json

__all__ = ["LIMITS", "command"]

LIMITS = Limits(seconds=60.0, answer_bytes=64 << 20)
"""What the lint of one contract may use. Ours take a fifth of a second each."""


@click.command("lint")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paths: tuple[Path, ...], as_json: bool) -> ExitStatus:
    """Check contracts: files, or folders of them; all of the project's if no PATH is given.

    lint makes the checks that every command makes. It also searches for an observation that satisfies the contract and,
    for each clause, for one that violates this clause. The exit status is 2 if there is an error, and 3 if a contract
    needs more time or memory than lint spends on one: it is undecided then.
    """
    project = Project.find()
    within = [project.files(path) if path.is_dir() else [path] for path in paths] if paths else [project.files()]
    # A file itself can be a link, also one to itself.
    files = dict.fromkeys(file.parent.resolve() / file.name for some in within for file in some)
    reports = list(_reports(project, list(files)))
    if as_json:
        tell_json({"format": 1, "contracts": reports})
    else:
        for report in reports:
            _print(report)
        tell(_summary(reports))
    if any(report["state"] in ("refused", "unsound") for report in reports):
        return ExitStatus.REFUSED
    decided = reports and not any(report["state"] == "undecided" for report in reports)
    return ExitStatus.PASS if decided else ExitStatus.NOT_MEASURED


def _reports(project: Project, files: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the state and the findings of each file. What the loader refuses is a finding too."""
    contracts, refused = project.load_all(files)
    loaded = {contract.path: contract for contract in contracts}
    refusals = {error.path: error.problems for error in refused}
    found = _linted(project, [loaded[file] for file in files if file not in refusals])
    for file in files:
        if file in refusals:
            yield {"file": str(file), "state": "refused", "findings": [_refusal(one) for one in refusals[file]]}
        else:
            yield {"file": str(file), **next(found)}


def _linted(project: Project, contracts: list[Contract]) -> Iterator[dict[str, Any]]:
    """Yield the state and the findings of each contract, each found in a process of its own within LIMITS."""

    def work(contract: Contract) -> bytes:
        tempfile.tempdir = folder  # a process that is stopped cannot remove its own files
        return strictjson.dumps([asdict(finding) for finding in lint(contract, project.search)]).encode(
            "utf-8", "backslashreplace"
        )

    with tempfile.TemporaryDirectory(prefix="harness-lint-") as folder:
        works = [partial(work, contract) for contract in contracts]
        for contract, answer in zip(contracts, isolated_all(works, LIMITS, os.cpu_count() or 1), strict=True):
            findings = [asdict(undecided(f"its check {answer}"))] if isinstance(answer, Stopped) else json.loads(answer)
            findings = [one for one in findings if not _is_ignored(project, contract, one)]
            severities = {finding["severity"] for finding in findings}
            if Severity.ERROR in severities:
                state = "unsound"
            elif UNDECIDED in {finding["rule"] for finding in findings}:
                state = "undecided"
            else:
                state = "warnings" if severities else "sound"
            yield {"state": state, "findings": findings}


def _is_ignored(project: Project, contract: Contract, finding: dict[str, Any]) -> bool:
    claims = project.ignored.get(finding["rule"], ())
    return finding["severity"] == "warning" and any(fnmatchcase(contract.id, claim) for claim in claims)


def _refusal(problem: Problem) -> dict[str, Any]:
    return {"rule": "refused", "severity": "error", **asdict(problem), "example": None}


def _print(report: dict[str, Any]) -> None:
    for finding in report["findings"]:
        tell(f"{report['file']}: {finding['severity']}: {finding['pointer'] or '/'}: {finding['message']}")
        tell(f"    {finding['remedy']} [{finding['rule']}]")
        if finding["example"] is not None:
            click.echo(f"    example: {_shortened(strictjson.dumps(finding['example']))}")


def _shortened(text: str, limit: int = 600) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters; --json prints all)"


def _summary(reports: list[dict[str, Any]]) -> str:
    states = Counter(report["state"] for report in reports)
    sound = states["sound"] + states["warnings"]
    bad = states["refused"] + states["unsound"]
    count = len(reports)
    undecided = f", {states['undecided']} undecided" if states["undecided"] else ""
    return f"{counted(count, 'contract')}: {sound} sound, {bad} refused, {states['warnings']} with warnings{undecided}"
