"""Coverage of a bundle: whether its record is about the present project, and about everything that the claim says.

    state = ProjectState(Project.find())
    for finding in (*coverage(record, contract_subject), *staleness(record, state)):
        print(finding)

Staleness follows from digests and git's history, not from dates or names. A file that was touched, or changed and
changed back, makes no bundle stale. All findings are remarks (`Severity.REMARK`): a stale bundle is still sound
evidence of what was measured then. A run that states a start in the future gets a remark too (`clock_ahead`).

Which source files belong to what
---------------------------------
A record lists every source file of the project that its trials imported (`record.sources`), but not what used them.
That follows from the project's present sources. An entry point uses its own module and everything that this imports.

- A change in a file that the subject uses is STALE_SUBJECT. So is a change in a file that Python cannot import: such a
  file describes an external trainer, or is a source of one.
- A change in a file that the falsifier uses is STALE_FALSIFIER. A file that both use gives both findings.
- A change in any other file is STALE_FALSIFIER too. Only mutants use it, or it is imported by a name computed at run
  time. So every changed file gives a finding.
- A record with a verdict on the subject must list at least one file of the subject and one of the falsifier. Otherwise
  it is stale, because nothing shows that it is fresh.

A subject does not belong to the falsifier because mutants inherit from it: if you change only the subject, the only
finding is STALE_SUBJECT.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, final

from harness.base.device import DeviceClass, hardware
from harness.base.schemas import pointer
from harness.base.vocabulary import Verdict
from harness.contract.imports import imported_files
from harness.contract.planting import planted_sources
from harness.contract.project import Project
from harness.evidence.bundle_layout import LARGEST_DOCUMENT, RECORD
from harness.evidence.findings import Code, Finding
from harness.judging.record import Record, RecordedCommit
from harness.machine import git, provenance

__all__ = [
    "STALE",
    "Origin",
    "ProjectState",
    "Recorded",
    "changes",
    "clock_ahead",
    "coverage",
    "is_ahead",
    "staleness",
    "unplanted",
]

STALE = frozenset({Code.STALE_CONTRACT, Code.STALE_FALSIFIER, Code.STALE_SUBJECT})
"""The codes that make evidence stale: contract, falsifier or subject have changed since."""

_IMPORTED = (".py", ".pyi", ".so")
_CHUNK = 1 << 20


class Recorded(Protocol):
    """The fields of a record that identify what ran. `Record` has them, and so has an entry of the index."""

    @property
    def id(self) -> str: ...
    @property
    def verdict(self) -> Verdict: ...
    @property
    def contract_digest(self) -> str: ...
    @property
    def falsifier(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def sources(self) -> Mapping[str, str]: ...


@final
@dataclass(frozen=True)
class Origin:
    """Where a record comes from: the fields that staleness needs."""

    id: str
    subject: str
    falsifier: str
    verdict: Verdict
    contract_digest: str
    sources: Mapping[str, str]
    harness: Mapping[str, str]
    commit: RecordedCommit

    @classmethod
    def of(cls, record: Record) -> Origin:
        """Return the origin of a record."""
        return cls(
            id=record.id,
            subject=record.subject,
            falsifier=record.falsifier,
            verdict=record.verdict,
            contract_digest=record.contract_digest,
            sources=record.sources,
            harness=record.harness,
            commit=record.commit,
        )


@final
class ProjectState:
    """The present state of a project. Each part is looked up once, on first use; make a new object to look again."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._sources: dict[str, str | None] = {}
        self._uses: dict[str, frozenset[str]] = {}
        self._contracts: dict[str, str | None] = {}
        self._planted: dict[str, Mapping[str, frozenset[str]]] = {}

    @cached_property
    def ancestry(self) -> git.Ancestry:
        """The commits in the history of the present checkout."""
        return git.ancestry(self._project.root)

    @cached_property
    def commit(self) -> git.Commit:
        """The commit that is checked out."""
        outputs = [self._project.evidence.relative_to(self._project.root).as_posix()]
        return git.commit(self._project.root, outputs=outputs)

    @cached_property
    def harness(self) -> str:
        """The sha256 over the harness's own source files."""
        return provenance.harness_identity()["sha256"]

    def contract_digest(self, claim: str) -> str | None:
        """Return the sha256 of a claim's contract file; None if it cannot be read, or there is not exactly one."""
        if claim not in self._contracts:
            files = self._contract_files.get(claim, [])
            self._contracts[claim] = _digest(files[0]) if len(files) == 1 else None
        return self._contracts[claim]

    def planted(self, claim: str) -> Mapping[str, frozenset[str]]:
        """Return the digests of the files in which defects were planted for a claim; none if it has no contract."""
        if claim not in self._planted:
            files = self._contract_files.get(claim, [])
            self._planted[claim] = planted_sources(files[0].parent, claim) if len(files) == 1 else {}
        return self._planted[claim]

    def source_digest(self, name: str) -> str | None:
        """Return the sha256 of a file below the project's root; None if it is missing or lies outside."""
        if name not in self._sources:
            plain = not name.startswith("/") and ".." not in PurePosixPath(name).parts
            self._sources[name] = _digest(self._project.root / name) if plain else None
        return self._sources[name]

    def uses(self, entry_point: str) -> frozenset[str]:
        """Return the files that an entry point uses, by name relative to the project's root."""
        if entry_point not in self._uses:
            root = self._project.root
            files = imported_files(entry_point, self._project.search)
            self._uses[entry_point] = frozenset(file.relative_to(root).as_posix() for file in files)
        return self._uses[entry_point]

    @cached_property
    def _contract_files(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for path in self._project.files():
            found.setdefault(path.stem, []).append(path)
        return found


def coverage(record: Record, contract_subject: str) -> tuple[Finding, ...]:
    """Return remarks on what a record, by its own fields, does not cover; pure.

    Args:
        contract_subject: the subject's entry point in the bundle's contract; the record names the measured one.
    """
    return tuple(_coverage(record, contract_subject))


def _coverage(record: Record, contract_subject: str) -> Iterator[Finding]:
    commit = record.commit
    if commit["dirty"] is not False:
        unknown = f"it is not known whether the checkout had any: {commit['reason'] or 'git did not say'}"
        said = "the checkout had changes that are in no commit" if commit["dirty"] else unknown
        yield _remark(Code.DIRTY_TREE, said, "commit", "dirty")
    if not record.on_target:
        said = f"the claim speaks of {hardware(record.target)}; this is {DeviceClass.of(record.device)}"
        yield _remark(Code.WRONG_TARGET, said, "device")
    if record.profile != "full":
        said = f"the claim speaks of the full profile; this is the {record.profile} one ({record.profile_reason})"
        if record.unjudged:
            said += f"; not judged: {record.left_out}"
        yield _remark(Code.REDUCED_PROFILE, said, "profile")
    if record.mutants_skipped:
        said = "the mutants were skipped: nothing shows that this falsifier could have failed"
        yield _remark(Code.MUTANTS_SKIPPED, said, "mutants_skipped")
    if record.overrides:
        changed = _some([f"{name}={value}" for name, value in record.overrides.items()])
        yield _remark(Code.OVERRIDDEN, f"this run has other parameters than the contract's: {changed}", "overrides")
    if record.subject != contract_subject:
        yield _remark(Code.OTHER_SUBJECT, f"measured was {record.judged}, not {contract_subject}", "subject")


def staleness(record: Record | Origin, state: ProjectState) -> tuple[Finding, ...]:
    """Return remarks on a record whose project has changed since: its contract, its sources or its history."""
    return (*changes(record, state), *_history(record, state))


def changes(recorded: Recorded, state: ProjectState) -> tuple[Finding, ...]:
    """Return the findings that make a record stale. Their codes are those of STALE."""
    return tuple(_changes(recorded, state))


def _changes(record: Recorded, state: ProjectState) -> Iterator[Finding]:
    now = state.contract_digest(record.id)
    if now != record.contract_digest:
        said = "this project has no contract of this claim" if now is None else "the claim's contract was changed since"
        yield _remark(Code.STALE_CONTRACT, said, "contract_digest")
    falsifier = state.uses(record.falsifier)
    subject = state.uses(record.subject) | {name for name in record.sources if not name.endswith(_IMPORTED)}
    changed = {name for name, digest in record.sources.items() if state.source_digest(name) != digest}
    parts = (
        (Code.STALE_FALSIFIER, falsifier, {name for name in changed if name in falsifier or name not in subject}),
        (Code.STALE_SUBJECT, subject, changed & subject),
    )
    for code, uses, names in parts:
        if names:
            gone = [name for name in names if state.source_digest(name) is None]
            one = len(names) == 1
            if len(gone) == len(names):
                were = f"{'is' if one else 'are'} not there any more"
            else:
                were = f"{'differs' if one else 'differ'} from what was measured"
            yield _remark(code, f"{_some(sorted(names))} {were}", "sources")
        elif record.verdict is not Verdict.NOT_MEASURED and uses.isdisjoint(record.sources):
            yield _remark(code, "the record lists none of the files that it uses", "sources")


def unplanted(record: Recorded, state: ProjectState) -> Iterator[Finding]:
    """Yield a remark if no defects were planted in the sources of the subject that was measured."""
    planted = state.planted(record.id)
    if not planted:
        said = "the claim has no planting score: nothing shows which defects its falsifier misses"
        yield _remark(Code.UNPLANTED, said, "subject")
        return
    measured = record.sources
    subject = state.uses(record.subject) | planted.keys()
    missed = sorted(name for name in subject & measured.keys() if measured[name] not in planted.get(name, ()))
    if missed:
        yield _remark(Code.UNPLANTED, f"no defects were planted in the measured {_some(missed)}", "sources")


def _history(record: Record | Origin, state: ProjectState) -> Iterator[Finding]:
    lacks = state.ancestry.lacks(record.commit["revision"])
    if lacks:
        reason = record.commit["reason"] if record.commit["revision"] is None else None
        yield _remark(Code.COMMIT_NOT_IN_HISTORY, f"{lacks}: {reason}" if reason else lacks, "commit", "revision")
    if record.harness.get("sha256") != state.harness:
        version = record.harness["version"]
        which = "a checkout that was not installed" if version == provenance.NOT_INSTALLED else f"version {version}"
        yield _remark(Code.OTHER_HARNESS, f"another state of the harness measured it: {which}", "harness")


def _remark(code: Code, message: str, *steps: str) -> Finding:
    return Finding(code, RECORD, message[:600], pointer(*steps))


def _some(names: Sequence[Any]) -> str:
    """Return the first names of a list, and the number of further ones."""
    shown = ", ".join(str(name)[:120] for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _digest(path: Path) -> str | None:
    """Return the sha256 of a file; None if it is not regular, cannot be read, or is too large for a source file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_DOCUMENT:
            return None
        content = b""
        while chunk := os.read(descriptor, _CHUNK):
            content += chunk
            if len(content) > LARGEST_DOCUMENT:
                return None
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return hashlib.sha256(content).hexdigest()


_SLACK = timedelta(hours=1)
"""The difference between two clocks that gives no remark. Clocks without network time differ by minutes."""


def is_ahead(started: datetime, now: datetime) -> bool:
    """Whether a time is later than `now` by more than clocks usually differ."""
    return started > now + _SLACK


def clock_ahead(record: Record, now: datetime) -> Iterator[Finding]:
    """Yield a remark if a record states a start in the future. An invalid `started` is a finding of the checks."""
    try:
        started = datetime.fromisoformat(record.started)
    except ValueError:
        return
    if is_ahead(started, now):
        said = f"it says {record.started}, and by this machine's clock it is {now.isoformat(timespec='seconds')}"
        order = "a PASS counts as the oldest of its claim's runs, a FAIL or VOID as the newest"
        yield Finding(Code.CLOCK_AHEAD, RECORD, f"{said}: one of the two clocks is wrong; {order}", "/started")
