"""A survey of a project: the status of its claims, and gaps in its evidence that no status shows.

survey = Survey.of(Project.find())
for claim in survey.claims:
    print(claim.id, claim.status)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from harness.base.plugins import PluginError
from harness.base.vocabulary import Status, Verdict
from harness.contract import Contract, ContractError
from harness.contract.claim_folder import claim_of
from harness.contract.other_subject import NamedSubject, SubjectRefused, named
from harness.contract.project import Project, ProjectError
from harness.evidence.bundle import Bundle
from harness.evidence.bundle_layout import MANIFEST
from harness.evidence.claim_status import ClaimStatus, statuses
from harness.evidence.findings import Finding, Verification
from harness.evidence.index import Contents, Entry, Unreadable, Watch, entry_of, read
from harness.evidence.staleness import ProjectState, changes
from harness.evidence.verification import verify_all
from harness.judging.record import examined
from harness.machine.cache_folder import cache_folder

__all__ = ["Gaps", "Staleness", "Survey", "default_subjects", "gaps"]

_DECIDED = frozenset({Status.DISCHARGED, Status.PARTIAL, Status.FALSIFIED})


@final
class Staleness:
    """Determines why bundles no longer cover a project, with a cache for entries with the same sources."""

    def __init__(
        self, project: Project, contracts: Iterable[Contract] = (), files: Iterable[Path] | None = None
    ) -> None:
        """Args:
        contracts: the loaded contracts of the project.
        files: the contract files, if known.
        """
        self._state = ProjectState(project, {contract.id: contract.digest for contract in contracts}, files)
        self.remember = self._state.remember
        self._known: dict[tuple[object, ...], tuple[tuple[Finding, ...], Mapping[str, str]]] = {}

    def __call__(self, entry: Entry) -> tuple[Finding, ...]:
        """Return the changes; empty if the bundle covers the project."""
        code = id(entry.sources)  # the index shares them between entries
        key = (code, entry.id, entry.verdict, entry.contract_digest, entry.falsifier, entry.subject)
        if key not in self._known:
            # Without duplicates: the subject and the falsifier may use the same file.
            unique = {(change.detail, str(change.fields)): change for change in changes(entry, self._state)}
            self._known[key] = tuple(unique.values()), entry.sources  # so that nothing else gets their id
        return self._known[key][0]


@final
@dataclass(frozen=True)
class Survey:
    """The claims of a project, their evidence and their status."""

    contracts: tuple[Contract, ...]
    refused: tuple[ContractError, ...]
    """Contracts that cannot be loaded; their claims have no status."""
    contents: Contents
    """All evidence, in the order of the paths."""
    claims: tuple[ClaimStatus, ...]
    """The status of every claim whose contract was loaded, by id."""
    stale: Staleness

    @classmethod
    def of(cls, project: Project, evidence: Path | None = None, device: str = "", watch: Watch | None = None) -> Survey:
        """Read a project's contracts and evidence.

        Args:
            evidence: the folder of bundles, if it is not the project's own.
            device: use only evidence from device classes whose name contains this text.
            watch: see `harness.evidence.index.read`.
        """
        place = evidence or project.evidence
        contents = read(place, cache=cache_folder(), watch=watch)
        ran, own = {entry.id for entry in contents.entries}, set(project.files())
        known = project.known(own)
        contracts, refused = project.load_all(path for path in known if path in own or claim_of(path) in ran)
        contents, subjects = _of_devices(contents, device), default_subjects(project, contracts)
        stale = Staleness(project, () if refused else contracts, known)  # a refused one can have the id of another
        judged: set[Path] = set()
        is_indexed = True
        while True:
            claims = statuses(contracts, contents.entries, stale, datetime.now(UTC), subjects)
            rows = [row for claim in claims for row in (claim, *claim.others)]
            cells = (cell for row in rows for cell in row.cells.values() if cell.status in _DECIDED)
            deciding = {entry.path: entry for cell in cells if (entry := cell.decided_by) and entry.path not in judged}
            if not deciding:
                break
            wrong = _unsound([*deciding.values()])
            if wrong and is_indexed:  # a bundle is forged, or the index: without the index, it shows which
                contents, is_indexed = _of_devices(read(place, watch=watch), device), False
                judged.clear()
            else:
                contents = _without(contents, wrong)
                judged |= deciding.keys()
        stale.remember()
        return cls(tuple(contracts), tuple(refused), contents, claims, stale)


def _of_devices(contents: Contents, name: str) -> Contents:
    """Return the evidence from device classes whose name contains this text."""
    return replace(contents, entries=tuple(entry for entry in contents.entries if name in str(entry.device_class)))


@final
@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps in the coverage of a project; every part is sorted by id."""

    unclaimed: Mapping[str, Sequence[str]]
    """Ids that sources or documents mention but no contract has, with the places."""
    refused: Mapping[str, Sequence[str]]
    """Contracts that cannot be loaded, for example without a falsifier or without mutants, with the reasons."""
    never_full: tuple[str, ...]
    """Claims without a verdict from a run in the full profile, of any subject and with any parameters."""
    never_killed: Mapping[str, Sequence[str]]
    """For each claim that was run, the mutants that no run killed."""
    orphaned: Mapping[str, int]
    """Claims that have evidence but no contract, with the number of bundles."""


def gaps(
    contracts: Iterable[Contract],
    refused: Iterable[ContractError],
    entries: Iterable[Entry],
    mentions: Mapping[str, Sequence[str]],
) -> Gaps:
    """Find the gaps.

    Args:
        refused: why contracts cannot be loaded. The name of each file is the claim's id.
        entries: all evidence.
        mentions: every id that the project's files mention, with the places.
    """
    loaded = {contract.id: contract for contract in contracts}
    unusable = {claim_of(error.path): [str(problem) for problem in error.problems] for error in refused}
    bundles: dict[str, int] = {}
    killed: dict[str, set[str]] = {}
    in_full = set()
    for entry in entries:
        bundles[entry.id] = bundles.get(entry.id, 0) + 1
        killed.setdefault(entry.id, set()).update(entry.killed)
        if entry.profile == "full" and entry.verdict is not Verdict.NOT_MEASURED:
            in_full.add(entry.id)
    alive = {
        name: [mutant.id for mutant in loaded[name].mutants if mutant.id not in killed[name]]
        for name in sorted(killed)
        if name in loaded
    }
    known = {*loaded, *unusable}
    return Gaps(
        unclaimed={name: list(mentions[name]) for name in sorted(mentions) if name not in known},
        refused=dict(sorted(unusable.items())),
        never_full=tuple(sorted(name for name in loaded if name not in in_full)),
        never_killed={name: mutants for name, mutants in alive.items() if mutants},
        orphaned={name: bundles[name] for name in sorted(bundles) if name not in known},
    )


_AT_ONCE = 16
"""Bundles per process. Starting a process takes as long as checking two bundles."""
_MORE = "; harness verify says more"


def _unsound(entries: Sequence[Entry]) -> dict[Path, str]:
    """Return why bundles are unsound or differ from their entries, by path. Sound bundles are left out."""
    verified = zip(entries, verify_all([entry.path for entry in entries], at_once=_AT_ONCE), strict=True)
    return {entry.path: why for entry, verification in verified if (why := _wrong(entry, verification))}


def _wrong(entry: Entry, verification: Verification) -> str:
    """Return why a bundle is unsound or differs from its entry; empty if neither is the case."""
    if verification.findings:
        codes = sorted({f"{problem.code} {problem.file}".strip() for problem in verification.findings})
        return f"is unsound: {', '.join(codes[:3])}{_MORE}"
    now = entry_of(entry.path)
    if isinstance(now, Unreadable):
        return now.reason
    if now != entry or Bundle(entry.path).digest(MANIFEST) != verification.manifest:
        return "is not what the index says of it"
    return ""


def _without(contents: Contents, refused: Mapping[Path, str]) -> Contents:
    """Return the evidence with refused bundles moved to the unreadable ones."""
    if not refused:
        return contents
    more = (Unreadable(path, why) for path, why in refused.items())
    return Contents(
        tuple(entry for entry in contents.entries if entry.path not in refused),
        tuple(sorted((*contents.unreadable, *more), key=lambda entry: entry.path)),
    )


def default_subjects(project: Project, claims: Iterable[Contract]) -> dict[str, str]:
    """Return the subject of each claim for which the settings name one, in the form of `Entry.examined`.

    Raises:
        ProjectError: a subject that they name cannot be read.
    """
    known: dict[str, NamedSubject | None] = {}
    subjects: dict[str, str] = {}
    for claim in claims:
        if text := project.subject_of(claim.id):
            try:
                subject = known[text] if text in known else named(text, project, is_default=True)
            except (SubjectRefused, PluginError) as error:
                raise ProjectError(f"{project.root / 'pyproject.toml'}: tool.harness.subjects: {error}") from error
            known[text] = subject
            subjects[claim.id] = (
                text if subject is None else examined(subject.entry_point(claim.falsifier), subject.own(claim))
            )
    return subjects
