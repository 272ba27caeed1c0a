"""The index page: a matrix of claims and devices, and a list of all bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup

from harness.base.vocabulary import Verdict
from harness.contract.project import Project
from harness.evidence import index
from harness.evidence.claim_status import Cell, Status, statuses
from harness.evidence.findings import NOT_ACCEPTED, UNSOUND, Code, Verification
from harness.evidence.survey import Staleness
from harness.report import due_text
from harness.report.html.templating import marked, page
from harness.report.status_table import set_aside
from harness.report.verdict_text import signed

__all__ = ["Entry", "Field", "Matrix", "Row", "matrix_of_project", "matrix_of_verdicts", "render"]

_SIGNATURE = frozenset({Code.UNSIGNED, Code.UNKNOWN_KEY})


@dataclass(frozen=True)
class Entry:
    """One bundle in the list."""

    page: str
    """The path of its page, relative to the index."""
    id: str
    title: str
    verification: Verification
    issue: str = ""
    spec: str = ""
    verdict: str = ""
    reason: str = ""
    proven: bool = False
    profile: str = ""
    device: str = ""
    started: str = ""
    seconds: float = 0.0
    killed: int = 0
    mutants: int = 0
    skipped: bool = False
    """Whether its mutants were skipped."""
    overridden: bool = False

    @property
    def signed(self) -> str:
        """Who signed the bundle, in a few words."""
        return signed(self.verification)

    @property
    def codes(self) -> list[Code]:
        """The codes of all findings and remarks, without those on signatures."""
        found = (*self.verification.findings, *self.verification.remarks)
        return list(dict.fromkeys(one.code for one in found if one.code not in _SIGNATURE))


def render(entries: Sequence[Entry], matrix: Matrix, asked: Sequence[Sequence[str]]) -> str:
    """Return the index page.

    Args:
        entries: the bundles, in the order of the list.
        asked: what the bundles were checked against (see `harness.report.verdict_text.asked`).
    """
    words = [*map(str, Verdict), NOT_ACCEPTED, UNSOUND]
    standings = [entry.verification.standing for entry in entries]
    signatures = [entry.signed for entry in entries]
    return page(
        "index.html.j2",
        entries=entries,
        matrix=matrix,
        counts=[(word, standings.count(word)) for word in words if word != NOT_ACCEPTED or word in standings],
        signatures=[(word, signatures.count(word)) for word in sorted(set(signatures))],
        asked=list[Markup](map(marked, asked)),
    )


@dataclass(frozen=True)
class Field:
    """A cell of the matrix: one claim on one class of device."""

    word: str
    """A status; without a project, the verdict of the newest bundle."""
    note: str
    page: str | None
    """The page of the bundle that decides; None if there is none."""
    aside: tuple[tuple[str, str | None], ...] = ()
    """The FAILs that do not count for the claim, in words, each with its page."""


@dataclass(frozen=True)
class Row:
    """A row of the matrix: one claim."""

    id: str
    title: str
    issue: str
    target: str
    status: str
    """The status over all devices; empty if unknown."""
    fields: tuple[Field | None, ...]


@dataclass(frozen=True)
class Matrix:
    """Claims by classes of device."""

    devices: tuple[str, ...]
    rows: tuple[Row, ...]
    legend: str
    """What the words in the cells mean."""

    def counts(self) -> list[tuple[str, int]]:
        """Return the number of claims with each status; empty if no status is known."""
        words = [row.status for row in self.rows if row.status]
        return [(str(status), words.count(status)) for status in Status] if words else []


def matrix_of_project(project: Project, evidence: Sequence[index.Entry], pages: Mapping[Path, str]) -> Matrix:
    """Return the status of every claim of a project, by sound bundles.

    Args:
        pages: the page of each bundle, by its folder.
    """
    contracts, _ = project.load_all()
    claims = statuses(contracts, evidence, Staleness(project), datetime.now(UTC))
    devices = sorted({entry.device_class for entry in evidence})
    here = {entry.id for entry in evidence}
    rows = [
        Row(
            id=claim.id,
            title=claim.title,
            issue=claim.issue,
            target=claim.target,
            status=str(claim.status),
            fields=tuple(_field(claim.cells[device], pages) if device in claim.cells else None for device in devices),
        )
        for claim in claims
    ]
    known = {claim.id for claim in claims}
    # Claims with bundles come first. A reader of foreign bundles does not look for the rest.
    tried, others = [row for row in rows if row.id in here], [row for row in rows if row.id not in here]
    strangers = matrix_of_verdicts(
        [entry for entry in evidence if entry.id not in known], pages, [str(one) for one in devices]
    )
    legend = (
        "DISCHARGED: a proven PASS of the full profile on the claim's hardware, with the code as it is. "
        "PARTIAL: a proven PASS elsewhere, or of the reduced profile. FALSIFIED: a FAIL. "
        "STALE: contract, falsifier or subject changed since. UNRUN: no bundle here says anything. "
        "Set aside: a FAIL with other parameters or of another subject, which refutes another sentence than the claim."
    )
    return Matrix(tuple(str(device) for device in devices), (*tried, *strangers.rows, *others), legend)


def matrix_of_verdicts(
    evidence: Sequence[index.Entry], pages: Mapping[Path, str], devices: Sequence[str] | None = None
) -> Matrix:
    """Return the verdict of the newest sound bundle of each claim. It needs no project."""
    newest: dict[tuple[str, str], index.Entry] = {}
    for entry in sorted(evidence, key=lambda entry: (entry.when, entry.run), reverse=True):
        newest.setdefault((entry.id, str(entry.device_class)), entry)
    columns = tuple(devices) if devices is not None else tuple(sorted({device for _, device in newest}))
    rows = []
    for claim in sorted({claim for claim, _ in newest}):
        found = [newest.get((claim, device)) for device in columns]
        first = next(entry for entry in found if entry is not None)
        fields = tuple(
            None if one is None else Field(str(one.verdict), _about(one), pages.get(one.path)) for one in found
        )
        rows.append(Row(claim, first.title, first.issue, "", "", fields))
    legend = "The verdict of the newest sound bundle; made where the contracts are, the report says what they come to."
    return Matrix(columns, tuple(rows), legend)


def _field(cell: Cell, pages: Mapping[Path, str]) -> Field:
    entry = cell.decided_by or cell.newest
    note = _about(entry) if entry else ""
    if why := due_text.of_cell(cell):
        note = f"{why} · {note}" if note else why
    aside = tuple((text, pages.get(path) if path else None) for text, path in set_aside(cell))
    return Field(str(cell.status), note, pages.get(entry.path) if entry else None, aside)


def _about(entry: index.Entry) -> str:
    return f"{entry.profile} profile, {entry.started[:10]}"
