"""The index of evidence: the content of every record.json, with a cache.

    contents = read(project.evidence)
    for entry in contents.entries:
        print(entry.verdict, entry.id, entry.device_class, entry.path)

The index reads record.json of each bundle and checks its digest against the manifest; `harness verify` checks the rest.
It reads a bundle again if one of the two files changed (inode, size or times), and forgets a bundle that is gone.

Several processes may use the cache concurrently. A damaged cache is rebuilt. Without a writable cache, reading takes
longer.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, final

from harness.base import strictjson
from harness.base.device import Device, DeviceClass, Target
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Fate, Verdict
from harness.contract.contract_annotations import Result
from harness.contract.reasons import Reason
from harness.evidence.bundle import Bundle, BundleError
from harness.evidence.bundle_layout import MANIFEST, RECORD, UNFINISHED, UNPACKING, find_bundles
from harness.judging.record import RecordedCommit, examined, judged
from harness.machine.file_memory import FileMemory, identity

__all__ = [
    "Contents",
    "Entry",
    "Unreadable",
    "Watch",
    "entry_of",
    "past_runs",
    "read",
    "whole_runs",
]

Watch = Callable[[int, int], None]
"""Called with the number of bundles read so far, and the number to read."""

_OBJECTS: Mapping[str, Callable[[Any], Any]] = {
    "overrides": dict, "subject_parameters": dict, "target": dict, "harness": dict, "commit": dict, "killed": tuple,
    "failed": tuple, "device": Device.from_json, "verdict": Verdict,
    "unjudged": tuple, "reason": lambda document: document and Reason.from_json(document),
}  # fmt: skip
"""Fields with a parsed form. Many bundles have equal values, so each distinct value is parsed once."""


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """One bundle, according to its record. The fields are those of the record."""

    path: Path
    """The bundle's folder."""
    id: str
    issue: str
    spec: str
    title: str
    run: str
    verdict: Verdict
    reason: Reason | None
    proven: bool
    profile: str
    overrides: JsonObject
    mutants_skipped: bool
    falsifier: str
    subject: str
    subject_parameters: JsonObject
    target: Target
    device: Device
    seed: int
    started: str
    """UTC, ISO 8601."""
    seconds: float
    trial_seconds: float
    contract_digest: str
    sources: Mapping[str, str]
    """sha256 of every source file of the project that the trials imported, by path. Shared between entries."""
    harness: Mapping[str, str]
    commit: RecordedCommit
    command: str
    killed: tuple[str, ...]
    """Ids of the mutants that were killed."""
    failed: tuple[str, ...]
    """Ids of the subject's clauses that failed."""
    lived: bool
    """Whether a mutant was not killed as declared."""
    unjudged: tuple[str, ...] = ()
    """Ids of the clauses that the profile or an external subject leaves out."""

    @property
    def result(self) -> Result:
        """The part of the result that a known refutation states."""
        return Result(self.verdict, self.failed, self.lived)

    @property
    def judged(self) -> str:
        """The subject as `--subject` takes it."""
        return judged(self.subject, self.subject_parameters)

    @property
    def examined(self) -> str:
        """The subject with its own parameters, as command-line options."""
        return examined(self.subject, self.subject_parameters)

    @property
    def device_class(self) -> DeviceClass:
        """The class of the device on which the claim ran."""
        return DeviceClass.of(self.device)

    @property
    def when(self) -> datetime:
        """The start, parsed."""
        return datetime.fromisoformat(self.started)


@final
@dataclass(frozen=True, slots=True)
class Unreadable:
    """A bundle's folder whose record cannot be read or differs from the manifest."""

    path: Path
    reason: str


@final
@dataclass(frozen=True, slots=True)
class Contents:
    """All bundles below a folder of evidence, in the order of the paths."""

    entries: tuple[Entry, ...]
    unreadable: tuple[Unreadable, ...]


_FIELDS = [name for name in Entry.__slots__ if name not in ("path", "sources", *_OBJECTS)]
"""The other fields, which are taken from the record unchanged."""
_VERSION = repr((11, Entry.__slots__))
"""The version of the cache's content. Increment it when a field changes its meaning."""
_NONE = "no sources"
_Row = tuple[str, str, str, str]
"""The cached row of a bundle: the problem, or the claim, its fields as JSON, and the digest of its sources."""


def read(evidence: Path, claim: str | None = None, cache: Path | None = None, watch: Watch | None = None) -> Contents:
    """Read all records below a folder.

    Args:
        evidence: the project's evidence, or any folder with bundles below it. Links are not followed.
        claim: if given, only bundles of this claim are returned.
        cache: the folder of caches; None reads every record.
        watch: called with the number of bundles read so far, and the number to read.
    """
    evidence = evidence.absolute()
    shared = lru_cache(maxsize=None)(_object)
    memory = FileMemory("index", None if cache is None else evidence, _VERSION, cache)
    below = find_bundles([evidence]) if evidence.exists() else []
    folders = [str(folder) for folder in below if not folder.name.startswith((UNFINISHED, UNPACKING))]
    fingerprints = {folder.removeprefix(f"{evidence}/"): _fingerprint(folder) for folder in folders}
    changed = [name for name, state in fingerprints.items() if not memory.knows(name, state)]
    rows: dict[str, _Row] = {name: memory.get(name) for name in fingerprints.keys() - changed}
    sources: dict[str, Mapping[str, str]] = {key: memory.get(key) for *_, key in rows.values()}
    try:
        for done, name in enumerate(changed, 1):
            row, known = _row(evidence / name, fingerprints[name])
            rows[name], sources[row[3]] = memory.put(name, fingerprints[name], row), memory.put(row[3], "", known)
            if watch is not None:
                watch(done, len(changed))
    finally:  # an interrupted read of thousands of bundles keeps what it read
        memory.save()
    entries, unreadable = [], []
    for name in fingerprints:
        problem, of, text, key = rows[name]
        path = evidence / name
        if problem:
            unreadable.append(Unreadable(path, problem))
        elif claim in (None, of):
            entries.append(_entry(path, text, sources[key], shared))
    return Contents(tuple(entries), tuple(unreadable))


def entry_of(folder: Path) -> Entry | Unreadable:
    """Read one bundle, without the cache."""
    (problem, _, text, _), sources = _row(folder, "")
    return Unreadable(folder, problem) if problem else _entry(folder, text, sources, _object)


def _entry(path: Path, document: str, sources: Mapping[str, str], read: Callable[[str, str], Any]) -> Entry:
    plain, objects = json.loads(document)
    values = dict(zip(_FIELDS, plain, strict=True))
    for name, text in zip(_OBJECTS, objects, strict=True):
        values[name] = read(name, text)
    return Entry(path=path, sources=sources, **values)


def _object(name: str, text: str) -> Any:
    """Return a field of an entry that is an object, from the cache's text."""
    document = json.loads(text)
    return _OBJECTS[name](strictjson.untag_nonfinite(document) if '"nonfinite"' in text else document)


def _row(folder: Path, state: str) -> tuple[_Row, Mapping[str, str]]:
    """Read one bundle for the cache. Returns its row, and its sources."""
    if state.startswith("!"):
        return (state[2:], "", "", _NONE), {}
    bundle = Bundle(folder)
    try:
        record, sealed, digest = bundle.record, bundle.manifest.get(RECORD), bundle.digest(RECORD)
        datetime.fromisoformat(record.started)
    except BundleError as error:
        return (str(error), "", "", _NONE), {}
    except ValueError as error:
        return (f"{RECORD}: {error}", "", "", _NONE), {}
    if digest != sealed:
        problem = f"{RECORD}: is not the one that {MANIFEST} seals; run `harness verify` to see all findings"
        return (problem, "", "", _NONE), {}
    killed = [mutant.id for mutant in record.mutants if mutant.fate is Fate.KILLED]
    values = {**record.to_json(), "killed": killed, "failed": record.result.failed, "lived": record.lived}
    document = [[values[name] for name in _FIELDS], [_text(values[name]) for name in _OBJECTS]]
    key = hashlib.sha256(json.dumps(record.sources, sort_keys=True).encode()).hexdigest()[:24]
    return ("", record.id, json.dumps(document), key), record.sources


def _text(document: Any) -> str:
    # ASCII, because SQLite needs UTF-8, and half of a surrogate pair in a title has none.
    return json.dumps(document)


def _fingerprint(folder: str) -> str:
    """Return inode, size and times of a bundle's record and manifest; "! …" names a problem."""
    try:
        return " ".join(identity(f"{folder}/{name}") for name in (RECORD, MANIFEST))
    except FileNotFoundError as error:
        return f"! {os.path.basename(error.filename)} is missing"
    except OSError as error:
        return f"! {error.strerror}"


def whole_runs(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the runs that measured something with the contract's parameters, the oldest first."""
    for entry in sorted(entries, key=lambda entry: entry.started):
        if entry.trial_seconds > 0 and entry.verdict is not Verdict.NOT_MEASURED and not entry.overrides:
            yield entry


def past_runs(entries: Iterable[Entry]) -> dict[tuple[str, str, str, str], float]:
    """Return the seconds of the newest run with mutants, by claim, profile, device class and subject."""
    return {
        (entry.id, entry.profile, str(entry.device_class), entry.subject): entry.seconds
        for entry in whole_runs(entries)
        if not entry.mutants_skipped
    }
