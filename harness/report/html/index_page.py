"""The index: which claims were tried on which devices, and every bundle."""

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
from harness.report import reason_text
from harness.report.html.templating import marked, page
from harness.report.status_table import set_aside
from harness.report.verdict_text import signed

__all__ = ["Entry", "Field", "Matrix", "Row", "matrix_of_project", "matrix_of_verdicts", "render"]

_SIGNATURE = frozenset({Code.UNSIGNED, Code.UNKNOWN_KEY})


@dataclass(frozen=True)
class Entry:
    """A bundle as the index shows it."""

    page: str
    """Its page, relative to the index."""
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
    """Whether the mutants were."""
    overridden: bool = False

    @property
    def signed(self) -> str:
        """Who signed it, in a few words."""
        return signed(self.verification)

    @property
    def codes(self) -> list[Code]:
        """What verifying found and remarked beside the signature, each once."""
        found = (*self.verification.findings, *self.verification.remarks)
        return list(dict.fromkeys(one.code for one in found if one.code not in _SIGNATURE))


def render(entries: Sequence[Entry], matrix: Matrix, asked: Sequence[Sequence[str]]) -> str:
    """The page.

    Args:
        entries: the bundles in the order in which they are to be listed.
        asked: what they were held against (see `harness.report.verdict_text.asked`).
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
    """A claim on a class of device."""

    word: str
    """A status, or the verdict of the newest bundle where no project says what the evidence covers."""
    note: str
    page: str | None
    """The page of the bundle that decides; None where there is none."""
    aside: tuple[tuple[str, str | None], ...] = ()
    """The FAILs that do not speak for the claim, in words, each with its page."""


@dataclass(frozen=True)
class Row:
    """A claim."""

    id: str
    title: str
    issue: str
    target: str
    status: str
    """Over all devices; empty where it is not known."""
    fields: tuple[Field | None, ...]


@dataclass(frozen=True)
class Matrix:
    """The whole."""

    devices: tuple[str, ...]
    rows: tuple[Row, ...]
    legend: str
    """What the words mean here."""

    def counts(self) -> list[tuple[str, int]]:
        """How many claims have each status; nothing where none is known."""
        words = [row.status for row in self.rows if row.status]
        return [(str(status), words.count(status)) for status in Status] if words else []


def matrix_of_project(project: Project, evidence: Sequence[index.Entry], pages: Mapping[Path, str]) -> Matrix:
    """The status of every claim of a project, by sound bundles.

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
    # Of a stranger's bundle, the rest of the project's claims are not what its reader came for.
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
    """The verdict of the newest sound bundle of each claim, where there is no project to say what it covers."""
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
    if why := reason_text.of_cell(cell):
        note = f"{why} · {note}" if note else why
    aside = tuple((text, pages.get(path) if path else None) for text, path in set_aside(cell))
    return Field(str(cell.status), note, pages.get(entry.path) if entry else None, aside)


def _about(entry: index.Entry) -> str:
    return f"{entry.profile} profile, {entry.started[:10]}"
