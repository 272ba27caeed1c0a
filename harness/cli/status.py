"""`harness status`: shows the status of every claim, on every class of device with evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from harness.base.vocabulary import ExitStatus
from harness.cli.options import evidence_option
from harness.contract.mentions import mentions
from harness.contract.project import Project
from harness.evidence.claim_status import ClaimStatus
from harness.evidence.survey import Gaps, Survey, gaps
from harness.report import status_table as report
from harness.report.running_jobs import running_jobs
from harness.report.terminal.printing import COLOURS, tell, tell_all, tell_json, terminal_width
from harness.report.terminal.progress_line import progress_line

__all__ = ["command"]

_STATUSES = ("discharged", "partial", "falsified", "stale", "unrun")
_GAPS = ("unclaimed", "never-full", "never-killed", "orphaned")


def _words(text: str) -> frozenset[str]:
    """Split a text at commas."""
    words = frozenset(filter(None, (word.strip().lower() for word in text.split(","))))
    for word in sorted(words - {*_STATUSES, *_GAPS}):
        raise click.BadParameter(f"{word!r} is none of {', '.join((*_STATUSES, *_GAPS))}")
    return words


@click.command("status")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--issue", metavar="ISSUE", help="Only claims of an issue, such as PMAT-697.")
@click.option("--spec", metavar="SPEC", help="Only claims of a spec, such as SPEC-DISTILL-001.")
@click.option("--device", metavar="TEXT", help="Only evidence from devices with this in their name, such as H200.")
@evidence_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--only", type=_words, default="", metavar="WORDS", help="Show only claims with these, such as falsified,stale."
)
@click.option(
    "--fail-on", type=_words, default="", metavar="WORDS", help="Fail on any of these, such as stale,unrun,falsified."
)
@click.option("-v", "--verbose", is_flag=True, help="Show each class of device, the bundles, and all gaps.")
def command(
    ids: tuple[str, ...],
    issue: str | None,
    spec: str | None,
    device: str | None,
    evidence: Path | None,
    as_json: bool,
    only: frozenset[str],
    fail_on: frozenset[str],
    verbose: bool,
) -> ExitStatus:
    """Show the status of each claim in a line; of named claims, and with -v, every class of device with evidence.

    \b
    DISCHARGED  a proven PASS in full on the claim's hardware
    PARTIAL     one elsewhere, reduced, or of a stand-in
    FALSIFIED   a FAIL
    STALE       contract or code changed since the evidence
    UNRUN       nothing that counts

    A refutation that the contract knows is FALSIFIED too, and trips no --fail-on; a result that differs from it does.

    Each bundle that decides a status is judged again. `harness verify` judges all bundles; a gate needs both.

    --only and --fail-on take the statuses in lower case, and: unclaimed (ids named in sources, without a contract),
    never-full (falsifiers that never ran in full), never-killed (mutants) and orphaned (evidence). --only hides the
    rest; the last line still counts everything.

    Exit status: 1 if --fail-on names falsified and a claim is FALSIFIED and not known to be; else 3 if anything else
    that --fail-on names is found; 2 if a contract cannot be read or a bundle is not believed; 3 if there is no claim;
    else 0.
    """
    project = Project.find()
    ids = tuple(project.matching(ids))
    for name in ids:
        project.contract(name)
    with progress_line("indexing bundles") as watch:
        survey = Survey.of(project, evidence, device or "", watch)
    if device and not survey.contents.entries:
        tell(f"harness: there is no evidence from a device whose name contains {device!r}", err=True)
    chosen = [
        claim
        for claim in survey.claims
        if (not ids or claim.id in ids) and issue in (None, claim.issue) and spec in (None, claim.spec)
    ]
    if ids or issue or spec:  # only the gaps of the chosen claims
        names = {claim.id for claim in chosen}
        contracts = [contract for contract in survey.contracts if contract.id in names]
        missing = gaps(contracts, (), [entry for entry in survey.contents.entries if entry.id in names], {})
    else:
        missing = gaps(survey.contracts, survey.refused, survey.contents.entries, mentions(project))
    claims, shown_gaps = (chosen, missing) if not only else _filtered(chosen, missing, only)
    jobs = [] if ids or issue or spec or device or only else [*running_jobs(project)]
    if as_json:
        tell_json(report.document(claims, shown_gaps, survey.contents.unreadable, project.root, jobs))
    else:
        _show(claims, shown_gaps, verbose or bool(ids))
        tell_all(report.job_blocks(jobs))
        tell(report.totals(chosen))
    for unreadable in survey.contents.unreadable:
        tell(report.unreadable_line(unreadable), err=True)
    if survey.refused or survey.contents.unreadable:
        return ExitStatus.REFUSED
    return _exit_status(chosen, missing, fail_on)


def _show(claims: Sequence[ClaimStatus], missing: Gaps, verbose: bool) -> None:
    for line, status in report.lines(claims, missing, terminal_width(), verbose):
        tell(line, f"bold {COLOURS[status]}" if status else "", word=status or "")


def _filtered(claims: Sequence[ClaimStatus], missing: Gaps, only: frozenset[str]) -> tuple[list[ClaimStatus], Gaps]:
    """Return the claims and gaps that these words name. Contracts that cannot be run always stay."""
    hidden = [name.replace("-", "_") for name in _GAPS if name not in only]
    nothing: dict[str, Any] = {name: type(getattr(missing, name))() for name in hidden}
    return [claim for claim in claims if claim.status.lower() in only], replace(missing, **nothing)


def _exit_status(claims: Sequence[ClaimStatus], missing: Gaps, fail_on: frozenset[str]) -> ExitStatus:
    tripped = {claim.status.lower() for claim in claims if not claim.is_known}
    tripped |= {"falsified" for claim in claims if claim.is_news}
    tripped |= {name for name in _GAPS if getattr(missing, name.replace("-", "_"))}
    if fail_on & tripped:
        tell(f"harness: --fail-on found {', '.join(sorted(fail_on & tripped))}", err=True)
    if "falsified" in fail_on & tripped:
        return ExitStatus.FAIL
    return ExitStatus.NOT_MEASURED if fail_on & tripped or not claims else ExitStatus.PASS
