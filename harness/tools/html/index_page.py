"""The index page: a matrix of claims and devices, and a list of all bundles. What is against a claim stands first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from harness.base.device import DeviceClass
from harness.base.json_dataclass import JsonDataclass
from harness.base.vocabulary import Status, Verdict
from harness.contract import Contract
from harness.contract.project import Project
from harness.evidence import index
from harness.evidence.bundle import Bundle
from harness.evidence.bundle_layout import is_folder_name
from harness.evidence.claim_status import Cell, ClaimStatus, Why, statuses
from harness.evidence.findings import NOT_ACCEPTED, UNSOUND, Code, Finding, Verification
from harness.evidence.survey import Staleness, default_subjects
from harness.report.messages import due_text
from harness.report.messages.qualifiers import KNOWN, NEW, UNPROVEN
from harness.report.running_jobs import RunningJob
from harness.report.status_table import set_aside
from harness.tools.html.templating import page
from harness.tools.report_text import signed

__all__ = ["Field", "ListedBundle", "Matrix", "Row", "matrix", "render"]

_SIGNATURE = frozenset({Code.UNSIGNED, Code.UNKNOWN_KEY})
_ORDER: Final[tuple[str, ...]] = (
    Status.FALSIFIED, Verdict.FAIL, UNSOUND, NOT_ACCEPTED, Verdict.VOID, Verdict.NOT_MEASURED, UNPROVEN, Status.STALE,
    Status.PARTIAL, Verdict.PASS, Status.DISCHARGED, Status.UNRUN,
)  # fmt: skip
_MEANINGS: Final[Mapping[str, str]] = {
    **{status: status.meaning for status in Status},
    Verdict.VOID: "a mutant survived, so a PASS means nothing",
    Verdict.NOT_MEASURED: "something prevented the measurement",
    UNPROVEN: "a PASS, but no mutant shows that the falsifier can fail",
}


@dataclass(frozen=True)
class ListedBundle(JsonDataclass):
    """One bundle in the list."""

    page: str
    """The path of its page, relative to the index."""
    id: str
    title: str
    verification: Verification
    reason: str = ""
    claim: str = ""
    """What the bundle's contract claims."""
    proven: bool = False
    news: str = ""
    """`known` or `new` if a refutation of the project's contract speaks of the run."""
    circumstances: tuple[str, ...] = ()
    """The profile and the overridden parameters, in words."""
    device: str = ""
    series: str = ""
    """The runs with which this one can be compared: device, profile, parameters and subject, in words."""
    started: str = ""
    mutants: str = ""
    """How many were killed, in words."""
    numbers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Every number that a clause compares, by name (see `harness.tools.html.claim_page.numbers`)."""

    @property
    def signed(self) -> str:
        """Who signed the bundle, in a few words."""
        return signed(self.verification)

    @property
    def codes(self) -> list[Code]:
        """The codes of all findings and remarks, without those on signatures."""
        findings = (*self.verification.findings, *self.verification.remarks)
        return list(dict.fromkeys(finding.code for finding in findings if finding.code not in _SIGNATURE))


@dataclass(frozen=True)
class Field:
    """A cell of the matrix: one claim on one class of device."""

    word: str
    """A status. If no run decides about the claim: the verdict of the run that comes nearest."""
    note: str
    page: str | None
    """The page of the bundle that the word is about; None if there is none."""
    date: str = ""
    """The day on which that bundle was measured."""
    aside: tuple[tuple[str, str | None], ...] = ()
    """The FAILs that do not count for the claim, in words, each with its page."""


@dataclass(frozen=True)
class Row:
    """A row of the matrix: one claim."""

    id: str
    title: str
    issue: str
    target: str
    word: str
    """The word over all devices."""
    fields: tuple[Field | None, ...]
    claim: str = ""
    """What the project's contract claims; empty if it has none."""
    news: str = ""
    """`known` or `new` if a refutation of the contract speaks of the claim, or it is FALSIFIED without one."""
    subject: str = ""
    """The subject whose row it is; empty for the claim's own."""
    page: str = ""
    """The page of the claim, relative to the index; empty if its id is no name for a folder."""


@dataclass(frozen=True)
class Matrix:
    """Claims by classes of device."""

    devices: tuple[str, ...]
    rows: tuple[Row, ...]
    legend: tuple[tuple[str, str], ...]
    """What each word in the cells means."""

    def counts(self) -> list[tuple[str, int]]:
        """Return the number of claims with each word, the gravest first."""
        return _counted([row.word for row in self.claims])

    @property
    def claims(self) -> list[Row]:
        """The rows of the claims' own subjects."""
        return [row for row in self.rows if not row.subject]

    def refutations(self) -> list[tuple[str, int]]:
        """Return the number of claims with a refutation that the contract knows, and with a new one."""
        news = [row.news for row in self.claims]
        return [(word, news.count(word)) for word in (KNOWN, NEW)] if any(news) else []

    def fleet(self) -> list[list[tuple[str, int]]]:
        """Return the same for each class of device, of the claims that have a bundle there."""
        columns = zip(*(row.fields for row in self.claims), strict=True)
        return [_counted([field.word for field in column if field]) for column in columns]


def render(
    name: str,
    entries: Sequence[ListedBundle],
    table: Matrix,
    checked_against: Sequence[str],
    jobs: Sequence[RunningJob] = (),
) -> str:
    """Return the index page.

    Args:
        name: of the project; empty without one.
        entries: the bundles. The list shows the gravest first, and of equals the newest.
        asked: what the bundles were checked against (see `harness.tools.report_text.asked`).
        jobs: those that run now.
    """
    signatures = [entry.signed for entry in entries]
    return page(
        "index.html.j2",
        name=name,
        entries=sorted(entries, key=lambda entry: (entry.news != NEW, _ORDER.index(entry.verification.standing))),
        matrix=table,
        pages={row.id: row.page for row in table.rows},
        counts=_counted([entry.verification.standing for entry in entries]),
        signatures=[(word, signatures.count(word)) for word in sorted(set(signatures))],
        asked=checked_against,
        jobs=jobs,
    )


def matrix(
    project: Project | None,
    contracts: Sequence[Contract],
    evidence: Sequence[index.Entry],
    pages: Mapping[Path, ListedBundle],
) -> Matrix:
    """Return the status of every claim, by accepted bundles, as `harness status` computes it.

    A claim that the project lacks is held against the contract in its newest bundle.

    Args:
        contracts: those of the project for the claims of all bundles in the list.
        pages: the accepted bundles in the list, by their folders.
    """
    now, own = datetime.now(UTC), {contract.id for contract in contracts}
    claims: list[ClaimStatus] = []
    if project is not None:
        claims += statuses(contracts, evidence, Staleness(project), now, default_subjects(project, contracts))
    newest = {entry.id: entry for entry in sorted(evidence, key=_age) if entry.id not in own}
    sealed = [
        contract
        for entry in newest.values()
        if (contract := Bundle(entry.path).attempt(lambda bundle: bundle.contract, None))
    ]
    claims += map(_unchecked, statuses(sealed, evidence, lambda _: (), now))
    texts = {contract.id: contract.claim for contract in contracts}
    rows = [
        _row(status, texts.get(status.id, ""), evidence, pages) for claim in claims for status in (claim, *claim.others)
    ]
    words = {field.word for row in rows for field in (row, *row.fields) if field}
    legend = [(str(word), _MEANINGS[word]) for word in _ORDER if word in words & _MEANINGS.keys()]
    if any(field.aside for row in rows for field in row.fields if field):
        legend.append(("set aside", "a FAIL with other parameters or of another subject, which refutes another claim"))
    return Matrix(tuple(map(str, sorted({bundle.device_class for bundle in evidence}))), _sorted(rows), tuple(legend))


def _unchecked(claim: ClaimStatus) -> ClaimStatus:
    """Return the status of a claim that the project lacks: PARTIAL at best, as its code may have changed since."""
    if claim.status is not Status.DISCHARGED and not claim.others:
        return claim
    least = {Status.DISCHARGED: Status.PARTIAL}
    cells = {device: replace(cell, status=least.get(cell.status, cell.status)) for device, cell in claim.cells.items()}
    others = tuple(map(_unchecked, claim.others))
    return replace(claim, status=least.get(claim.status, claim.status), cells=cells, others=others)


def _row(claim: ClaimStatus, text: str, evidence: Sequence[index.Entry], pages: Mapping[Path, ListedBundle]) -> Row:
    """Return the row of a claim, or of another subject of it.

    Args:
        text: what is claimed.
    """
    own = [entry for entry in evidence if entry.id == claim.id and claim.subject in ("", entry.examined)]
    fields = tuple(_field(cell, device, own, pages) for device, cell in claim.cells.items())
    words = [field.word for field in fields if field]
    word = str(claim.status) if claim.status is not Status.UNRUN or not words else min(words, key=_ORDER.index)
    news = "" if claim.subject else NEW if claim.is_news else KNOWN if claim.is_known else ""
    page = f"{claim.id}/index.html" if is_folder_name(claim.id) else ""
    return Row(claim.id, claim.title, claim.issue, claim.target, word, fields, text, news, claim.subject, page)


def _counted(words: Sequence[str]) -> list[tuple[str, int]]:
    """Return how often each word occurs, the gravest first."""
    return [(str(word), words.count(word)) for word in _ORDER if word in words]


def _sorted(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the gravest claims first, of refutations the new ones, and claims whose bundles do not count last.

    The other subjects of a claim are below it.
    """
    claims = [row for row in rows if not row.subject]
    claims.sort(key=lambda row: (not any(row.fields), row.news != NEW, _ORDER.index(row.word)))
    return tuple(
        row for claim in claims for row in (claim, *(row for row in rows if row.subject and row.id == claim.id))
    )


def _field(
    cell: Cell,
    device: DeviceClass,
    evidence: Sequence[index.Entry],
    pages: Mapping[Path, ListedBundle],
) -> Field | None:
    """Return a cell. Its word is not UNRUN but a verdict if a run speaks for the claim."""
    if cell.newest is None:
        return None
    word, about = str(cell.status), cell.decided_by or cell.newest
    if cell.status is Status.UNRUN:
        reasons = {note.why: note.value for note in cell.notes if not isinstance(note, Finding)}
        verdict = reasons.get(Why.VERDICT, "" if reasons else Verdict.PASS)
        alike = [entry for entry in evidence if entry.device_class == device and entry.verdict == verdict]
        about = max(alike, key=_age, default=about)
        word = _verdict(about) if verdict else word
    # The profile stands beside the date, and the entry's reason has value and bound.
    notes = [note for note in cell.notes if isinstance(note, Finding) or note.why not in (Why.REDUCED, Why.VERDICT)]
    why = due_text.of_cell(replace(cell, notes=tuple(notes), cause=None))
    reason = pages[about.path].reason if cell.cause and about.path in pages else ""
    note = " · ".join(filter(None, (why, reason, f"{about.profile} profile")))
    aside = tuple((text, _page(path, pages)) for text, path in set_aside(cell))
    return Field(word, note, _page(about.path, pages), about.started[:10], aside)


def _page(path: Path | None, pages: Mapping[Path, ListedBundle]) -> str | None:
    shown = None if path is None else pages.get(path)
    return None if shown is None else shown.page


def _age(entry: index.Entry) -> tuple[datetime, int, str]:
    """Return a key by which the newest is the largest. Of runs that started together, the worst is the newest."""
    return entry.when, -_ORDER.index(_verdict(entry)), entry.run


def _verdict(entry: index.Entry) -> str:
    return UNPROVEN if entry.verdict is Verdict.PASS and not entry.proven else str(entry.verdict)
