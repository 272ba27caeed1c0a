"""Formats the status of claims as text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.base.shortening import first
from harness.base.vocabulary import Status
from harness.evidence.claim_status import Cell, ClaimStatus
from harness.evidence.index import Entry, Unreadable
from harness.evidence.survey import Gaps
from harness.report.escaping import printable
from harness.report.messages import due_text, number_text
from harness.report.running_jobs import RunningJob
from harness.report.terminal.printing import Table

__all__ = ["document", "job_blocks", "lines", "set_aside", "totals", "unreadable_line"]

_ORDER = (Status.FALSIFIED, Status.STALE, Status.UNRUN, Status.PARTIAL, Status.DISCHARGED)
"""The order of the statuses. Those that need attention come first."""
_MOST_ITEMS = 6
"""Maximum items of a gap without -v."""
_MOST_PLACES = 3
_MOST_ASIDE = 3


def lines(
    claims: Sequence[ClaimStatus], gaps: Gaps, width: int | None, verbose: bool = False
) -> Iterator[tuple[str, Status | None]]:
    """Yield plain lines, each with its status or None. Statuses that need attention come first.

    Args:
        width: of the terminal, in columns. None means no limit.
        verbose: show each class of device, the bundles, and every item of the gaps.
    """
    widest = max((len(claim.id) for claim in claims), default=0)
    for claim in sorted(claims, key=lambda status: (not status.is_news, _ORDER.index(status.status))):
        if verbose:
            yield from _details(claim)
        else:
            line = printable(f"{claim.status:<10}  {claim.id:<{widest}}  {_short(claim)}".rstrip())
            yield _cut(line, width), claim.status
            for other in claim.others:
                line = printable(f"  {other.status:<10}  {other.subject}: {_short(other)}")
                yield _cut(line, width), other.status
    for head, items in _gap_lists(gaps):
        yield "", None
        if verbose or len(items) < 2:
            yield f"{head}:", None
            yield from ((f"  {item}", None) for item in items)
        else:
            more = [f"and {len(items) - _MOST_ITEMS} more (-v)"] if len(items) > _MOST_ITEMS else []
            yield f"{head}, {len(items)}: {'; '.join([*items[:_MOST_ITEMS], *more])}", None


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: width - 1].rstrip()}…"


def _short(claim: ClaimStatus) -> str:
    """Return the device class of a claim's status and the reasons, shortened."""
    cell = claim.deciding
    if cell is None:
        return "never run"
    place = next(str(device) for device, candidate in claim.cells.items() if candidate is cell)
    why = due_text.of_cell(cell)
    aside = sum(len(candidate.set_aside) for candidate in claim.cells.values())
    beside = f"{number_text.counted(aside, 'FAIL')} set aside" if aside else ""
    return "; ".join(filter(None, (f"{place}{f', {why}' if why else ''}" if cell.bundles else "never run", beside)))


def _details(claim: ClaimStatus) -> Iterator[tuple[str, Status | None]]:
    speaks_of = f" [{claim.target}]" if claim.target else ""
    yield f"{claim.status:<10}  {claim.id}  {claim.title}{speaks_of}", claim.status
    measured = {str(device): cell for device, cell in claim.cells.items() if cell.bundles}
    margin = max((len(name) for name in measured), default=0)
    for name, cell in measured.items():
        why = due_text.of_cell(cell)
        yield f"    {name:<{margin}}  {cell.status}{f'  {why}' if why else ''}", cell.status
        yield f"      {due_text.place(cell.bundle)}", None
        for text, bundle in set_aside(cell):
            yield f"      set aside: {text}", None
            if bundle is not None:
                yield f"        {due_text.place(bundle)}", None
    for other in claim.others:
        yield f"    {other.status}  {printable(other.subject)}: {_short(other)}", other.status
    unrun = [str(device) for device, cell in claim.cells.items() if not cell.bundles]
    if unrun:
        yield f"    not run on {', '.join(unrun)}", None


def unreadable_line(unreadable: Unreadable) -> str:
    """Return the line for a bundle whose record cannot be read or is unsound."""
    return f"{due_text.place(unreadable.path)}: {unreadable.reason}"


def totals(claims: Sequence[ClaimStatus]) -> str:
    """Return the last line: the numbers of claims by status, and of known and new refutations."""
    count = Counter(claim.status for claim in claims)
    total, known, news = sum(count.values()), 0, 0
    for claim in claims:
        known, news = known + claim.is_known, news + claim.is_news
    counts = ", ".join(f"{count[status]} {status}" for status in Status)
    refuted = f"; refuted: {known} known, {news} new" if known or news else ""
    return f"{number_text.counted(total, 'claim')}: {counts}{refuted}"


def job_blocks(jobs: Sequence[RunningJob]) -> Iterator[str | Table]:
    """Yield the blocks for running jobs; none without jobs."""
    if jobs:
        yield ""
        yield "running jobs:"
        yield Table([(job.name, job.state, job.refutations_text) for job in jobs])


def document(
    claims: Sequence[ClaimStatus],
    gaps: Gaps,
    unreadable: Sequence[Unreadable],
    root: Path,
    jobs: Sequence[RunningJob],
) -> dict[str, Any]:
    """Return everything as JSON values. Paths below the project's root are relative to it."""
    count = Counter(claim.status for claim in claims)
    return {
        "format": 1,
        "claims": [
            {
                "id": claim.id,
                "issue": claim.issue,
                "spec": claim.spec,
                "title": claim.title,
                "target": claim.target,
                "status": claim.status,
                "newest": _entry_document(claim.newest, root),
                "devices": {str(device): _cell(cell, root) for device, cell in claim.cells.items()},
                "subjects": {
                    row.subject: {
                        "status": row.status,
                        "devices": {str(device): _cell(cell, root) for device, cell in row.cells.items()},
                    }
                    for row in claim.others
                },
            }
            for claim in claims
        ],
        "total": {"claims": len(claims), "statuses": {status: count[status] for status in Status}},
        "gaps": {
            "unclaimed": gaps.unclaimed,
            "refused": gaps.refused,
            "never_full": list(gaps.never_full),
            "never_killed": gaps.never_killed,
            "orphaned": gaps.orphaned,
        },
        "jobs": [asdict(job) for job in jobs],
        "unreadable": [{"bundle": _relative(entry.path, root), "reason": entry.reason} for entry in unreadable],
    }


def _gap_lists(gaps: Gaps) -> Iterator[tuple[str, list[str]]]:
    """Yield each gap that exists: its title and its items."""
    lists = [
        ("contracts that cannot be run", [f"{name}: {'; '.join(why)}" for name, why in gaps.refused.items()]),
        (
            "named in sources without a contract",
            [f"{name}: {first(at, _MOST_PLACES)}" for name, at in gaps.unclaimed.items()],
        ),
        ("falsifiers never run in full", list(gaps.never_full)),
        ("mutants that no run has killed", [f"{name}: {', '.join(ids)}" for name, ids in gaps.never_killed.items()]),
        (
            "evidence of claims without a contract",
            [f"{name}: {number_text.counted(count, 'bundle')}" for name, count in gaps.orphaned.items()],
        ),
    ]
    return (item for item in lists if item[1])


def _cell(cell: Cell, root: Path) -> dict[str, Any]:
    return {
        "status": cell.status,
        "reason": due_text.of_cell(cell),
        "strength": cell.strength.name.lower(),
        "known": cell.is_known,
        "new": cell.is_news,
        "decided_by": _entry_document(cell.decided_by, root),
        "newest": _entry_document(cell.newest, root),
        "bundles": cell.bundles,
        "set_aside": [_entry_document(entry, root) for entry in cell.set_aside],
    }


def _entry_document(entry: Entry | None, root: Path) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {
        "bundle": _relative(entry.path, root),
        "verdict": entry.verdict,
        "proven": entry.proven,
        "profile": entry.profile,
        "started": entry.started,
    }


def set_aside(cell: Cell) -> Iterator[tuple[str, Path | None]]:
    """Yield the FAILs that do not count, each with its bundle, the newest first. A last item counts those not shown."""
    for entry in cell.set_aside[:_MOST_ASIDE]:
        parameters = ", ".join(f"{name}={number_text.value(value)}" for name, value in entry.overrides.items())
        of = f"with other parameters: {parameters}" if parameters else f"of another subject: {entry.judged}"
        yield f"a FAIL {of}", entry.path
    if (more := len(cell.set_aside) - _MOST_ASIDE) > 0:
        yield f"{more} more", None


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
