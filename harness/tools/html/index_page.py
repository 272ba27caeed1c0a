"""The index page: a matrix of claims and devices, and a list of all bundles. What is against a claim stands first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from harness.base.device import DeviceClass
from harness.base.json_dataclass import JsonDataclass
from harness.base.vocabulary import Status, Verdict
from harness.contract import Contract
from harness.contract.project import Project
from harness.evidence import index
from harness.evidence.bundle_layout import is_folder_name
from harness.evidence.claim_status import Cell, ClaimStatus, Why, statuses
from harness.evidence.default_subjects import default_subjects
from harness.evidence.findings import NOT_ACCEPTED, UNSOUND, Code, Finding, Verification
from harness.evidence.survey import Staleness
from harness.report.messages import due_text
from harness.report.messages.qualifiers import KNOWN, NEW, UNPROVEN
from harness.report.messages.verdict_text import signed
from harness.report.running_jobs import RunningJob
from harness.report.status_table import set_aside
from harness.tools.html.templating import marked, page

__all__ = ["Field", "ListedBundle", "Matrix", "Row", "matrix_of_project", "matrix_of_verdicts", "render"]

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
_WITHOUT_CONTRACT: Final = "the verdict of the newest sound bundle, of a claim without a contract here"


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
        found = (*self.verification.findings, *self.verification.remarks)
        return list(dict.fromkeys(one.code for one in found if one.code not in _SIGNATURE))


@dataclass(frozen=True)
class Field:
    """A cell of the matrix: one claim on one class of device."""

    word: str
    """A status. If no run decides about the claim: the verdict of the run that comes nearest."""
    note: str
    page: str | None
    """The page of the bundle that the word is about; None if there is none."""
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

    @property
    def page(self) -> str | None:
        """The page of the claim, relative to the index; None if its id is no name for a folder."""
        return f"{self.id}/index.html" if is_folder_name(self.id) else None


@dataclass(frozen=True)
class Matrix:
    """Claims by classes of device."""

    devices: tuple[str, ...]
    rows: tuple[Row, ...]
    legend: tuple[tuple[str, str], ...]
    """What each word in the cells means."""

    def counts(self) -> list[tuple[str, int]]:
        """Return the number of claims with each word, the gravest first."""
        return _counted([row.word for row in self.rows])

    def refutations(self) -> list[tuple[str, int]]:
        """Return the number of claims with a refutation that the contract knows, and with a new one."""
        news = [row.news for row in self.rows]
        return [(word, news.count(word)) for word in (KNOWN, NEW)] if any(news) else []

    def fleet(self) -> list[list[tuple[str, int]]]:
        """Return the same for each class of device, of the claims that have a bundle there."""
        columns = zip(*(row.fields for row in self.rows), strict=True)
        return [_counted([field.word for field in column if field]) for column in columns]


def render(
    name: str,
    entries: Sequence[ListedBundle],
    matrix: Matrix,
    asked: Sequence[Sequence[str]],
    jobs: Sequence[RunningJob] = (),
) -> str:
    """Return the index page.

    Args:
        name: of the project; empty without one.
        entries: the bundles. The list shows the gravest first, and of equals the newest.
        asked: what the bundles were checked against (see `harness.report.messages.verdict_text.asked`).
        jobs: those that run now.
    """
    signatures = [entry.signed for entry in entries]
    return page(
        "index.html.j2",
        name=name,
        entries=sorted(entries, key=lambda one: (one.news != NEW, _ORDER.index(one.verification.standing))),
        matrix=matrix,
        pages={row.id: row.page for row in matrix.rows},
        counts=_counted([entry.verification.standing for entry in entries]),
        signatures=[(word, signatures.count(word)) for word in sorted(set(signatures))],
        asked=list[Markup](map(marked, asked)),
        jobs=jobs,
    )


def matrix_of_project(
    project: Project, contracts: Sequence[Contract], evidence: Sequence[index.Entry], pages: Mapping[Path, ListedBundle]
) -> Matrix:
    """Return the status of every claim of a project, by sound bundles.

    Args:
        contracts: the project's contracts.
        pages: the accepted bundles in the list, by their folders.
    """
    devices = sorted({entry.device_class for entry in evidence})
    texts = {contract.id: contract.claim for contract in contracts}
    rows = []
    own: dict[str, list[index.Entry]] = {}
    for entry in evidence:
        own.setdefault(entry.id, []).append(entry)
    now = datetime.now(UTC)
    subjects = default_subjects(project, contracts)
    for claim in statuses(contracts, evidence, Staleness(project), now, subjects):
        fields = tuple(
            _field(
                claim.cells[device],
                device,
                own.get(claim.id, ()),
                pages,
            )
            for device in devices
        )
        word = _word(claim, fields)
        news = NEW if claim.is_news else KNOWN if claim.is_known else ""
        rows.append(Row(claim.id, claim.title, claim.issue, claim.target, word, fields, texts[claim.id], news))
    other_processes = matrix_of_verdicts([entry for entry in evidence if entry.id not in texts], pages, devices)
    words = {one.word for row in rows for one in (row, *row.fields) if one}
    legend = [(str(word), _MEANINGS[word]) for word in _ORDER if word in words & _MEANINGS.keys()]
    legend += [one for one in other_processes.legend if one[0] not in dict(legend)]
    if any(one.aside for row in rows for one in row.fields if one):
        legend.append(("set aside", "a FAIL with other parameters or of another subject, which refutes another claim"))
    return Matrix(tuple(map(str, devices)), _sorted([*rows, *other_processes.rows]), tuple(legend))


def matrix_of_verdicts(
    evidence: Sequence[index.Entry], pages: Mapping[Path, ListedBundle], devices: Sequence[DeviceClass] | None = None
) -> Matrix:
    """Return the verdict of the newest sound bundle of each claim. It needs no project."""
    newest: dict[tuple[str, DeviceClass], index.Entry] = {}
    for entry in sorted(evidence, key=_age, reverse=True):
        newest.setdefault((entry.id, entry.device_class), entry)
    columns = devices if devices is not None else sorted({device for _, device in newest})
    rows = []
    for claim in sorted({claim for claim, _ in newest}):
        found = [newest.get((claim, device)) for device in columns]
        fields = tuple(one and Field(_verdict(one), _about(one), _page(one.path, pages)) for one in found)
        first = max(filter(None, found), key=_age)
        rows.append(Row(claim, first.title, first.issue, "", _verdict(first), fields))
    words = {field.word for row in rows for field in row.fields if field}
    legend = tuple((str(word), _WITHOUT_CONTRACT) for word in _ORDER if word in words)
    return Matrix(tuple(map(str, columns)), _sorted(rows), legend)


def _counted(words: Sequence[str]) -> list[tuple[str, int]]:
    """Return how often each word occurs, the gravest first."""
    return [(str(word), words.count(word)) for word in _ORDER if word in words]


def _sorted(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the gravest rows first, of refutations the new ones, and claims without a bundle last."""
    return tuple(sorted(rows, key=lambda row: (not any(row.fields), row.news != NEW, _ORDER.index(row.word))))


def _word(claim: ClaimStatus, fields: Sequence[Field | None]) -> str:
    words = [one.word for one in fields if one]
    return str(claim.status) if claim.status is not Status.UNRUN or not words else min(words, key=_ORDER.index)


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
        found = {note.why: note.value for note in cell.notes if not isinstance(note, Finding)}
        verdict = found.get(Why.VERDICT, "" if found else Verdict.PASS)
        alike = [one for one in evidence if one.device_class == device and one.verdict == verdict]
        about = max(alike, key=_age, default=about)
        word = _verdict(about) if verdict else word
    # The profile stands beside the date, and the entry's reason has value and bound.
    notes = [note for note in cell.notes if isinstance(note, Finding) or note.why not in (Why.REDUCED, Why.VERDICT)]
    why = due_text.of_cell(replace(cell, notes=tuple(notes), cause=None))
    reason = pages[about.path].reason if cell.cause and about.path in pages else ""
    note = " · ".join(filter(None, (why, reason, _about(about))))
    aside = tuple((text, _page(path, pages)) for text, path in set_aside(cell))
    return Field(word, note, _page(about.path, pages), aside)


def _page(path: Path | None, pages: Mapping[Path, ListedBundle]) -> str | None:
    shown = None if path is None else pages.get(path)
    return None if shown is None else shown.page


def _age(entry: index.Entry) -> tuple[datetime, int, str]:
    """Return a key by which the newest is the largest. Of runs that started together, the worst is the newest."""
    return entry.when, -_ORDER.index(_verdict(entry)), entry.run


def _verdict(entry: index.Entry) -> str:
    return UNPROVEN if entry.verdict is Verdict.PASS and not entry.proven else str(entry.verdict)


def _about(entry: index.Entry) -> str:
    return f"{entry.profile} profile, {entry.started[:10]}"
