"""Coverage of a bundle: whether its record applies to the present project, and to all of the claim.

    state = ProjectState(Project.find())
    for remark in (*coverage(record, contract_subject), *staleness(record, state)):
        print(remark)

Staleness follows from digests and git's history, not from dates or names. A file that was touched, or changed and
reverted, makes no bundle stale. All findings are remarks (`Severity.REMARK`): a stale bundle is still sound evidence of
what was measured then. A run with a start or an end in the future gets a remark too.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from harness.base import regular_file
from harness.base.device import DeviceClass, hardware
from harness.base.vocabulary import Verdict
from harness.contract.claim_folder import claim_of
from harness.contract.contract_annotations import judging_part
from harness.contract.imports import imported_files
from harness.contract.installed import root_of
from harness.contract.project import Project
from harness.evidence.bundle_layout import LARGEST_DOCUMENT, RECORD
from harness.evidence.findings import Code, Detail, Finding, finding
from harness.judging.record import Record
from harness.machine import git, provenance
from harness.machine.file_memory import FileMemory
from harness.machine.timebox import Answer

if TYPE_CHECKING:
    from harness.evidence.index import Entry

__all__ = [
    "ProjectState",
    "changes",
    "clock_ahead",
    "coverage",
    "is_ahead",
    "name_fields",
    "staleness",
]

_IMPORTED = (".py", ".pyi", ".so")


@final
class ProjectState:
    """The present state of a project. Each part is read once, on first use; create a new object to read it again."""

    def __init__(
        self, project: Project, contracts: Mapping[str, str] | None = None, files: Iterable[Path] | None = None
    ) -> None:
        """Args:
        contracts: digests of contracts by claim, if known.
        files: the contract files, if known.
        """
        self._files = files
        self.project = project
        self._sources: dict[str, str | None] = {}
        self._uses: dict[str, frozenset[str]] = {}
        self._contracts: dict[str, str | None] = dict(contracts or {})

    @cached_property
    def ancestry(self) -> git.Ancestry:
        """The commits in the history of the present checkout."""
        return git.ancestry(self.project.root)

    @cached_property
    def commit(self) -> Answer[str]:
        """The commit that is checked out."""
        return git.commit(self.project.root)

    @cached_property
    def harness(self) -> str:
        """The sha256 over the harness's own source files."""
        return provenance.harness_identity()["sha256"]

    def contract_digest(self, claim: str) -> str | None:
        """Return the digest of a claim's contract; None if it cannot be read, or there is not exactly one."""
        if claim not in self._contracts:
            files = self.contract_files.get(claim, [])
            content = _content(files[0]) if len(files) == 1 else None
            self._contracts[claim] = None if content is None else hashlib.sha256(judging_part(content)).hexdigest()
        return self._contracts[claim]

    def source_digest(self, name: str) -> str | None:
        """Return the sha256 of a file below the project's root; None if it is missing or outside."""
        if name not in self._sources:
            try:
                self._sources[name] = _digest(self.project.named(name))
            except ValueError:  # a name of a stranger's record
                self._sources[name] = None
        return self._sources[name]

    def uses(self, entry_point: str, claim: str) -> frozenset[str]:
        """Return the files that an entry point of a claim uses, by their names in evidence."""
        contract = next(iter(self.contract_files.get(claim, ())), None)
        key = f"{'' if contract is None else root_of(contract) or ''}:{entry_point}"
        if key not in self._uses:
            files = imported_files(entry_point, self.project.search_of(contract), self._imports)
            self._uses[key] = frozenset(map(self.project.name_of, files))
        return self._uses[key]

    def remember(self) -> None:
        """Store expensive results in the cache folder, for the next state of this project."""
        self._imports.save()

    @cached_property
    def _imports(self) -> FileMemory:
        return FileMemory("imports", self.project.root, "")

    @cached_property
    def contract_files(self) -> dict[str, list[Path]]:
        """The contract files by claim."""
        paths_by_id: dict[str, list[Path]] = {}
        for path in self.project.known() if self._files is None else self._files:
            paths_by_id.setdefault(claim_of(path), []).append(path)
        return paths_by_id


def coverage(record: Record, contract_subject: str) -> Iterator[Finding]:
    """Yield remarks on what a record does not cover, from its fields alone. A pure function.

    Args:
        contract_subject: the subject's entry point in the bundle's contract; the record names the measured one.
    """
    commit = record.commit
    if commit["dirty"] is not False:
        if commit["dirty"]:
            yield _remark(Code.DIRTY_TREE, Detail.CHECKOUT_CHANGED, "/commit/dirty")
        else:
            text = commit["reason"] or "git did not say"
            yield _remark(Code.DIRTY_TREE, Detail.CHECKOUT_UNKNOWN, "/commit/dirty", text=text)
    if not record.on_target:
        target, device = hardware(record.target), str(DeviceClass.of(record.device))
        yield _remark(Code.WRONG_TARGET, Detail.OTHER_HARDWARE, "/device", target=target, device=device)
    if record.profile != "full":
        details = {"profile": record.profile, "why": record.profile_reason}
        if record.unjudged:
            details["clauses"] = record.left_out
        detail = Detail.CLAUSES_NOT_JUDGED if record.unjudged else Detail.OTHER_PROFILE
        yield _remark(Code.REDUCED_PROFILE, detail, "/profile", **details)
    if record.mutants_skipped:
        yield _remark(Code.MUTANTS_SKIPPED, Detail.SKIPPED, "/mutants_skipped")
    if record.overrides:
        changed = name_fields([f"{name}={value}" for name, value in record.overrides.items()])
        yield _remark(Code.OVERRIDDEN, Detail.OVERRIDDEN, "/overrides", **changed)
    if record.subject != contract_subject:
        details = {"measured": record.judged, "declared": contract_subject}
        yield _remark(Code.OTHER_SUBJECT, Detail.OTHER_SUBJECT, "/subject", **details)


def staleness(record: Record, state: ProjectState) -> Iterator[Finding]:
    """Yield remarks on a record whose project has changed since: its contract, its sources or its history."""
    yield from changes(record, state)
    yield from _history(record, state)


def changes(record: Record | Entry, state: ProjectState) -> Iterator[Finding]:
    """Yield the findings that make a record stale. Their codes are those of `findings.STALE`."""
    now = state.contract_digest(record.id)
    if now != record.contract_digest:
        detail = Detail.NO_CONTRACT if now is None else Detail.CONTRACT_CHANGED
        yield _remark(Code.STALE_CONTRACT, detail, "/contract_digest")
    falsifier = state.uses(record.falsifier, record.id)
    subject = state.uses(record.subject, record.id) | {name for name in record.sources if not name.endswith(_IMPORTED)}
    if _is_harness(record.subject):  # a suite of tests, which another process imported
        subject |= record.sources.keys()
    changed = {name for name, digest in record.sources.items() if state.source_digest(name) != digest}
    falsifiers = {name for name in changed if name in falsifier or name not in subject}
    parts = (
        (Code.STALE_FALSIFIER, record.falsifier, falsifier, falsifiers),
        (Code.STALE_SUBJECT, record.subject, subject, changed & subject),
    )
    for code, entry_point, uses, names in parts:
        if names:
            gone = all(state.source_digest(name) is None for name in names)
            detail = Detail.FILES_GONE if gone else Detail.FILES_CHANGED
            yield _remark(code, detail, "/sources", **name_fields(sorted(names)))
        elif record.verdict is Verdict.NOT_MEASURED or _is_harness(entry_point):
            continue  # the record has the identity of the harness
        elif uses.isdisjoint(record.sources):
            yield _remark(code, Detail.NO_FILES, "/sources")


def _is_harness(entry_point: str) -> bool:
    return entry_point.startswith("harness.")


def _history(record: Record, state: ProjectState) -> Iterator[Finding]:
    lacks = state.ancestry.lacks(record.commit["revision"])
    if lacks:
        reason = record.commit["reason"] if record.commit["revision"] is None else None
        text = f"{lacks}: {reason}" if reason else lacks
        yield _remark(Code.COMMIT_NOT_IN_HISTORY, Detail.NOT_IN_HISTORY, "/commit/revision", text=text)
    if record.harness.get("sha256") != state.harness:
        version = record.harness["version"]
        if version == provenance.NOT_INSTALLED:
            yield _remark(Code.OTHER_HARNESS, Detail.OTHER_CHECKOUT, "/harness")
        else:
            yield _remark(Code.OTHER_HARNESS, Detail.OTHER_VERSION, "/harness", version=version)


def _remark(code: Code, detail: Detail, where: str, **fields: Any) -> Finding:
    return finding(code, detail, RECORD, where, **fields)


def name_fields(names: Sequence[str]) -> dict[str, Any]:
    """Return finding fields for the first names of a list and the number of others."""
    return {"names": [name[:120] for name in names[:3]], "more": max(0, len(names) - 3)}


def _digest(path: Path) -> str | None:
    """Return the sha256 of a file; None if it is not regular, cannot be read, or is too large for a source file."""
    content = _content(path)
    return None if content is None else hashlib.sha256(content).hexdigest()


def _content(path: Path) -> bytes | None:
    try:
        return regular_file.read(path, LARGEST_DOCUMENT)
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None


_SLACK = timedelta(hours=1)
"""The tolerated difference between two clocks. Clocks without network time differ by minutes."""


def is_ahead(started: datetime, now: datetime) -> bool:
    """Whether a time is later than `now` by more than the tolerated difference of clocks."""
    return started > now + _SLACK


def clock_ahead(record: Record, now: datetime) -> Iterator[Finding]:
    """Yield a remark if a record states a start or an end in the future. The checks report a text that is no time."""
    try:
        started = datetime.fromisoformat(record.started)
    except ValueError:
        return
    details = {"started": record.started, "now": now.isoformat(timespec="seconds")}
    if is_ahead(started, now):
        yield _remark(Code.CLOCK_AHEAD, Detail.CLOCK_AHEAD, "/started", **details)
    elif record.seconds > (now + _SLACK - started).total_seconds():  # no sum, which could be past the year 9999
        yield _remark(Code.CLOCK_AHEAD, Detail.END_AHEAD, "/seconds", **details, seconds=record.seconds)
