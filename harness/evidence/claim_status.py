"""Computes the status of every claim on every device class from all evidence. This module reads no files.

    for claim in statuses(contracts, entries, stale):
        print(claim.id, claim.status, {str(device): str(cell.status) for device, cell in claim.cells.items()})

Which bundle counts
-------------------
A bundle *speaks for* a claim if it ran the contract's own subject with the contract's own parameters. A bundle
*covers* the project if it is not stale: contract, falsifier and subject have the digests that the bundle recorded.

Only bundles that speak for the claim and cover the project count. On one class of device:

1. In each profile, the newest FAIL or proven PASS counts.
   - A PASS does not count if a newer run of its profile is VOID, because the same falsifier let a mutant live.
   - NOT_MEASURED and unproven runs do not count.
   - If several runs started in the same second, the worst counts as the newest.
   - If a run states a start in the future, its real time is unknown. A PASS then counts as the oldest run, a FAIL or
     VOID as the newest.
2. The claim is FALSIFIED if the run of the full profile is a FAIL. It is also FALSIFIED if the run of the reduced
   profile is a FAIL, unless a proven PASS of the full profile is newer. So neither an older PASS nor a PASS of the
   reduced profile hides a FAIL.
3. The claim is DISCHARGED if the run of the full profile is a PASS on hardware that the claim names, all clauses were
   judged, and the contract names nothing that the claim stands in for.
4. The claim is PARTIAL if there is another PASS: of the full profile on other hardware or without all clauses, of the
   reduced profile, or of a stand-in.
5. Otherwise the claim is STALE if a bundle that does not cover the project would have counted, and UNRUN if not. The
   reason says why existing runs do not count.

A FAIL of another subject, or with other parameters, does not refute the claim. It is set aside: it changes no status,
and every report of the status names it. Each other subject has a status of its own, by the same rules.

If the project's settings name a subject for the claim, that one is the claim's own here (`default_subjects`).

A contract can list known refutations (`harness.contract.contract_annotations`). They change no status. A FAIL that none
of them predicts is news, and so is a PASS where one of them predicts a FAIL.

The claim as a whole is FALSIFIED if it is FALSIFIED on any device. Otherwise it has the status of its strongest
evidence, stale or not. From strongest to weakest: full profile on the claim's hardware, full profile on other hardware,
reduced profile. Among equally strong evidence, evidence that covers the project comes before stale evidence.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import final

from harness.base.device import DeviceClass, hardware
from harness.base.vocabulary import Status, Verdict
from harness.contract import Contract
from harness.contract.contract_annotations import refutation_of
from harness.contract.reasons import Reason, Worded
from harness.evidence.findings import Finding
from harness.evidence.index import Entry
from harness.evidence.staleness import is_ahead

__all__ = ["Cell", "ClaimStatus", "Note", "Stale", "Strength", "Why", "speaks_for", "statuses"]

Stale = Callable[[Entry], Sequence[Finding]]
"""Returns why a bundle no longer covers the project; empty if it does."""


class Strength(IntEnum):
    """The weight of a run as evidence, independent of its verdict."""

    NONE = 0
    REDUCED = 1
    FULL = 2
    """The full profile on other hardware."""
    TARGET = 3
    """The full profile on hardware that the claim names."""


class Why(Worded):
    """The reason for a claim's status on a device class. The template has a field for the value of the `Note`."""

    REDUCED = "reduced profile", "in the reduced profile"
    VERDICT = "verdict", "{}"
    CLOCK_AHEAD = "clock ahead", "no later run counts before {}, when it says it was started"
    """The run counts as the newest until `value`, its recorded day of start, which is in the future."""
    OTHER_HARDWARE = "other hardware", "the claim speaks of {}"
    NO_HARDWARE = "no hardware", "the claim names no hardware"
    OTHER_PARAMETERS = "other parameters", "only run with other parameters: {}"
    STANDS_IN = "stands in", "stands in for: {}"
    UNJUDGED = "unjudged", "{} clauses are not visible from outside"
    """`value` is the number of clauses that an external subject leaves out."""
    UNCOMMITTED = "uncommitted", "measured with uncommitted changes"
    KNOWN = "known", "known since {}"
    """The contract lists this refutation: `value` has the day and the explanation."""
    HOLDS = "holds", "new: it holds, and the contract says since {} that it is refuted"
    OTHER_FAIL = "other fail", "new: other clauses fail than the contract says since {}, or a mutant lived"
    OTHER_SUBJECT = "other subject", "only run with another subject: {}"


@final
@dataclass(frozen=True, slots=True)
class Note:
    """One reason with its value."""

    why: Why
    value: str = ""


@final
@dataclass(frozen=True, slots=True)
class Cell:
    """A claim on one class of device."""

    status: Status
    notes: tuple[Note | Finding, ...]
    """The reasons, without `cause`; for STALE, what changed."""
    strength: Strength
    decided_by: Entry | None
    """The bundle that the status follows from; None if there is none."""
    newest: Entry | None
    """The claim's newest bundle on this class of device, of any verdict."""
    bundles: int
    """The number of the claim's bundles on this class of device."""
    set_aside: tuple[Entry, ...] = ()
    """FAILs that do not speak for the claim: of another subject or with other parameters. Newest first."""
    cause: Reason | None = None
    """The reason in the record, if the status follows from it."""
    is_known: bool = False
    """Whether it is FALSIFIED as the contract predicts."""
    is_news: bool = False
    """Whether it contradicts the contract: FALSIFIED without a known refutation, or holding despite one."""

    @property
    def bundle(self) -> Path | None:
        """The folder of the bundle that decides, else of the newest bundle."""
        entry = self.decided_by or self.newest
        return None if entry is None else entry.path


NOTHING = Cell(Status.UNRUN, (), Strength.NONE, None, None, 0)
"""A claim on a class of device on which it never ran."""


@final
@dataclass(frozen=True, slots=True)
class ClaimStatus:
    """A claim on every class of device. The classes are those of all evidence, including that of other claims."""

    id: str
    issue: str
    spec: str
    title: str
    target: str
    """The hardware that the claim names, as text; empty if it names none."""
    status: Status
    cells: Mapping[DeviceClass, Cell]
    newest: Entry | None
    """The claim's newest bundle."""
    subject: str = ""
    """The subject, in the form of `Entry.examined`; empty for the claim's own."""
    others: tuple[ClaimStatus, ...] = ()
    """The same claim on other subjects that were run, by name. They change no status of the claim."""

    @property
    def is_known(self) -> bool:
        """Whether it is FALSIFIED, as the contract predicts on every device class."""
        return self.status is Status.FALSIFIED and not self.is_news

    @property
    def is_news(self) -> bool:
        """Whether the status contradicts the contract: FALSIFIED without a known refutation, or holding despite one."""
        return any(cell.is_news for cell in self.cells.values())

    @property
    def deciding(self) -> Cell | None:
        """The cell that determines the claim's status; None without evidence."""
        return _strongest(self.cells.values())


def statuses(
    contracts: Iterable[Contract],
    entries: Iterable[Entry],
    stale: Stale,
    now: datetime,
    subjects: Mapping[str, str] = MappingProxyType({}),
) -> tuple[ClaimStatus, ...]:
    """Return the status of every claim, in the order of the contracts.

    Args:
        contracts: the project's contracts.
        entries: all evidence. Evidence of a claim without a contract only adds its class of device.
        stale: called only for bundles that speak for their claim.
        now: the present time. A run with a later start had a wrong clock.
        subjects: the subjects that the project's settings name, by claim.
    """
    grouped: dict[str, dict[DeviceClass, list[Entry]]] = {}
    for entry in entries:
        grouped.setdefault(entry.id, {}).setdefault(entry.device_class, []).append(entry)
    devices = sorted({device for own in grouped.values() for device in own})

    def status(contract: Contract, own: Mapping[DeviceClass, list[Entry]], subject: str) -> ClaimStatus:
        cells = {
            device: _cell(contract, subject, device, own[device], stale, now) if device in own else NOTHING
            for device in devices
        }
        deciding = _strongest(cells.values())
        newest = _newest_first([cell.newest for cell in cells.values() if cell.newest is not None], now)
        return ClaimStatus(
            id=contract.id,
            issue=contract.issue,
            spec=contract.spec,
            title=contract.title,
            target=hardware(contract.target),
            status=Status.UNRUN if deciding is None else deciding.status,
            cells=cells,
            newest=newest[0] if newest else None,
        )

    claims = []
    for contract in contracts:
        subject, own = subjects.get(contract.id, ""), grouped.get(contract.id, {})
        others: dict[str, dict[DeviceClass, list[Entry]]] = {}
        for device, runs in own.items():
            for recorded in runs:
                if not (recorded.overrides or speaks_for(contract, recorded, subject)):
                    others.setdefault(recorded.examined, {}).setdefault(device, []).append(recorded)
        rows = (replace(status(contract, runs, name), subject=name) for name, runs in sorted(others.items()))
        claims.append(replace(status(contract, own, subject), others=tuple(rows)))
    return tuple(claims)


def speaks_for(contract: Contract, entry: Entry, subject: str = "") -> bool:
    """Whether a bundle ran the contract's own subject with the contract's own parameters.

    If the contract has changed since, its subject at that time is unknown. Then the recorded command line decides
    whether the user named another subject.

    Args:
        subject: check for this subject instead, in the form of `Entry.examined`.
    """
    if entry.overrides:
        return False
    if subject:
        return entry.examined == subject
    if entry.subject == contract.subject:
        return True
    return entry.contract_digest != contract.digest and "--subject" not in _words(entry.command)


def _cell(
    contract: Contract,
    subject: str,
    device: DeviceClass,
    given_entries: Iterable[Entry],
    stale: Stale,
    now: datetime,
) -> Cell:
    """Args:
    subject: see `speaks_for`.
    given_entries: the bundles of this claim on this device class, at least one.
    """
    entries = _newest_first(given_entries, now)
    speaking = [entry for entry in entries if speaks_for(contract, entry, subject)]
    aside = tuple(candidate for candidate in entries if candidate.verdict is Verdict.FAIL and candidate not in speaking)

    def cell(
        status: Status, notes: Iterable[Note | Finding], entry: Entry | None = None, cause: Reason | None = None
    ) -> Cell:
        strength = Strength.NONE if entry is None else _strength(contract, device, entry)
        falsified, holds = status is Status.FALSIFIED, status in (Status.DISCHARGED, Status.PARTIAL)
        known, news = False, falsified
        refutation = (
            None
            if subject not in ("", contract.subject)
            else entry and refutation_of(contract.refuted, str(device), entry.profile)
        )
        if entry is not None and refutation is not None and (falsified or holds):
            known = falsified and refutation.expects(entry.result)
            news = not known
            why = Why.KNOWN if known else Why.HOLDS if holds else Why.OTHER_FAIL
            since = f"{refutation.since}: {refutation.explanation}" if known else refutation.since
            notes = (*notes, Note(why, since))
        if holds and entry is not None and entry.commit["dirty"]:
            notes = (*notes, Note(Why.UNCOMMITTED))
        return Cell(status, tuple(notes), strength, entry, entries[0], len(entries), aside, cause, known, news)

    current = [entry for entry in speaking if not stale(entry)]
    full, reduced = (
        _counting([candidate for candidate in current if candidate.profile == profile])
        for profile in ("full", "reduced")
    )
    if full is not None and full.verdict is Verdict.FAIL:
        return cell(Status.FALSIFIED, _ahead(full, now), full, full.reason)
    is_newest = reduced is not None and (full is None or _counts_from(full, now) <= _counts_from(reduced, now))
    if reduced is not None and reduced.verdict is Verdict.FAIL and is_newest:
        return cell(Status.FALSIFIED, (Note(Why.REDUCED), *_ahead(reduced, now)), reduced, reduced.reason)
    stands_in = (Note(Why.STANDS_IN, contract.stands_in_for),) if contract.stands_in_for else ()
    if full is not None:
        lacks = (*((Note(Why.UNJUDGED, str(len(full.unjudged))),) if full.unjudged else ()), *stands_in)
        if device.meets(contract.target):
            return cell(Status.PARTIAL if lacks else Status.DISCHARGED, lacks, full)
        speaks_of = hardware(contract.target)
        note = Note(Why.OTHER_HARDWARE, speaks_of) if speaks_of else Note(Why.NO_HARDWARE)
        return cell(Status.PARTIAL, (note, *lacks), full)
    if reduced is not None:
        return cell(Status.PARTIAL, (Note(Why.REDUCED), *stands_in), reduced)
    void = next((entry for entry in current if entry.verdict is Verdict.VOID), None)
    if void is not None:
        return cell(Status.UNRUN, (Note(Why.VERDICT, void.verdict), *_ahead(void, now)), None, void.reason)
    outdated = [entry for entry in speaking if _counting([entry]) and stale(entry)]
    if outdated:
        # `outdated` is sorted newest first, and max returns the first of equals: the newest of the strongest.
        strongest = max(outdated, key=lambda entry: _strength(contract, device, entry))
        return cell(Status.STALE, stale(strongest), strongest)
    first = (speaking or entries)[0]
    if not speaking:
        return cell(Status.UNRUN, _of_another(first))
    notes = () if first.verdict is Verdict.PASS else (Note(Why.VERDICT, first.verdict),)
    return cell(Status.UNRUN, notes, None, first.reason)


def _counting(entries: Sequence[Entry]) -> Entry | None:
    """Return the bundle that counts (rule 1 above). `entries` are of one profile, newest first."""
    void = False
    for entry in entries:
        if entry.verdict is Verdict.FAIL:
            return entry
        if entry.verdict is Verdict.PASS and entry.proven and not void:
            return entry
        void = void or entry.verdict is Verdict.VOID
    return None


def _ahead(entry: Entry, now: datetime) -> tuple[Note, ...]:
    """Return a note on a run that counts as the newest because of its clock; empty for other runs."""
    return (Note(Why.CLOCK_AHEAD, entry.started[:10]),) if is_ahead(entry.when, now) else ()


def _of_another(entry: Entry) -> tuple[Note, ...]:
    """Return why a bundle does not speak for the claim."""
    if entry.overrides:
        return (Note(Why.OTHER_PARAMETERS, ", ".join(entry.overrides)),)
    return (Note(Why.OTHER_SUBJECT, entry.judged),)


def _strength(contract: Contract, device: DeviceClass, entry: Entry) -> Strength:
    if entry.profile != "full":
        return Strength.REDUCED
    return Strength.TARGET if device.meets(contract.target) else Strength.FULL


def _strongest(cells: Iterable[Cell]) -> Cell | None:
    """Return the cell that determines the claim's status as a whole."""

    def weight(cell: Cell) -> tuple[bool, Strength, bool, bool]:
        covers = cell.status not in (Status.STALE, Status.UNRUN)
        return cell.status is Status.FALSIFIED, cell.strength, covers, cell.newest is not None

    return max(cells, key=weight, default=None)


_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_WORST_LAST = (Verdict.NOT_MEASURED, Verdict.PASS, Verdict.VOID, Verdict.FAIL)


def _newest_first(entries: Iterable[Entry], now: datetime) -> list[Entry]:
    def place(entry: Entry) -> tuple[datetime, int, str]:
        return _counts_from(entry, now), _WORST_LAST.index(entry.verdict), entry.run

    return sorted(entries, key=place, reverse=True)


def _counts_from(entry: Entry, now: datetime) -> datetime:
    """Return the start of a run. For a start in the future, return a time at which the run hides no FAIL or VOID."""
    if not is_ahead(entry.when, now):
        return entry.when
    return _LAST if entry.verdict in (Verdict.FAIL, Verdict.VOID) else _FIRST


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
