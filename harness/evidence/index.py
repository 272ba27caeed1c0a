"""The index over evidence: the content of every record.json, kept in a cache that repairs itself.

    contents = read(project.evidence)
    for entry in contents.entries:
        print(entry.verdict, entry.id, entry.device_class, entry.path)

The index reads record.json of each bundle and checks its digest against the manifest; `harness verify` checks the rest.
It reads a bundle again if one of the two files changed (inode, size or times), and forgets a bundle that is gone.

Several commands may use the cache at once. A damaged cache is made anew. Without a writable cache the answer is the
same, but takes longer.
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
from harness.contract.bound import RULE
from harness.contract.contract_annotations import Result
from harness.contract.reasons import Reason
from harness.evidence.bundle import Bundle, BundleError
from harness.evidence.bundle_layout import DEEPEST, MANIFEST, OBSERVATION, RECORD, UNFINISHED
from harness.judging.record import Record, RecordedCommit, examined, judged
from harness.machine.file_memory import FileMemory, identity

__all__ = [
    "Contents",
    "Entry",
    "Measurement",
    "Unreadable",
    "Watch",
    "entry_of",
    "measurements_of",
    "past_runs",
    "read",
    "whole_runs",
]

Watch = Callable[[int, int], None]
"""Called with the number of bundles read so far, and the number to read."""

_FIELDS = (
    "id", "issue", "spec", "title", "run", "proven", "profile", "mutants_skipped", "falsifier", "subject", "seed",
    "started", "seconds", "trial_seconds", "contract_digest", "command", "lived",
)  # fmt: skip
"""Fields of the record that an entry takes unchanged, and that are no JSON objects."""
_OBJECTS: Mapping[str, Callable[[Any], Any]] = {
    "overrides": dict, "subject_parameters": dict, "target": dict, "harness": dict, "commit": dict, "killed": tuple,
    "failed": tuple, "device": Device.from_json, "verdict": Verdict,
    "unjudged": tuple, "reason": lambda document: document and Reason.from_json(document),
}  # fmt: skip
"""The others. Most bundles have the same as another bundle, so each is parsed once."""


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
    """Ids of the clauses that the profile, or a subject outside the trial's process, leaves out."""

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
        """The subject with its own parameters, as options take them."""
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
    """A folder that should be a bundle, but whose record cannot be read or is not the sealed one."""

    path: Path
    reason: str


@final
@dataclass(frozen=True, slots=True)
class Contents:
    """All bundles below a folder of evidence, in the order of the paths."""

    entries: tuple[Entry, ...]
    unreadable: tuple[Unreadable, ...]


@final
@dataclass(frozen=True, slots=True)
class Measurement:
    """A number that a clause of a record reads."""

    value: float
    """NaN and infinities included."""
    unit: str


_VERSION = repr((10, Entry.__slots__))
"""The version of the cache's content. Raise the number when a field changes its meaning."""
_NONE = "no sources"
_Row = tuple[str, str, str, str]
"""What is kept of a bundle: the problem, else the claim, the JSON text of its fields, and the name of its sources."""


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
    found = {os.fsdecode(name): state for name, state in sorted(_walk(evidence))}
    changed = [name for name, state in found.items() if not memory.knows(name, state)]
    rows: dict[str, _Row] = {name: memory.get(name) for name in found.keys() - changed}
    sources: dict[str, Mapping[str, str]] = {key: memory.get(key) for *_, key in rows.values()}
    try:
        for done, name in enumerate(changed, 1):
            row, known = _row(evidence / name, found[name])
            rows[name], sources[row[3]] = memory.put(name, found[name], row), memory.put(row[3], "", known)
            if watch is not None:
                watch(done, len(changed))
    finally:  # an interrupted read of thousands of bundles keeps what it read
        memory.save()
    entries, unreadable = [], []
    for name in found:
        problem, of, text, key = rows[name]
        path = Path(f"{evidence}/{name}")
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
    told = dict(zip(_FIELDS, plain, strict=True))
    for name, text in zip(_OBJECTS, objects, strict=True):
        told[name] = read(name, text)
    return Entry(path=path, sources=sources, **told)


def _object(name: str, text: str) -> Any:
    """Return a field of an entry that is an object, from the cache's text."""
    return _OBJECTS[name](_parsed(text))


def measurements_of(record: Record) -> dict[str, Measurement]:
    """Return every number that the clauses of a record read, by name.

    A measurement has its name in the contract (`final_loss`). For a list, a clause reports only the item nearest to its
    bound, so the name is that of the clause (`losses[].maximum`).
    """
    return {name: Measurement(*measured) for name, measured in _measured(record)}


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
    objects = {name: getattr(record, name) for name in _OBJECTS if name not in ("killed", "failed")}
    objects |= {"verdict": str(record.verdict), "device": record.device.to_json()}
    objects["reason"] = record.reason and record.reason.to_json()
    objects["failed"] = record.result.failed
    objects["killed"] = [mutant.id for mutant in record.mutants if mutant.fate is Fate.KILLED]
    document = [[getattr(record, name) for name in _FIELDS], [_text(objects[name]) for name in _OBJECTS]]
    key = hashlib.sha256(json.dumps(record.sources, sort_keys=True).encode()).hexdigest()[:24]
    return ("", record.id, json.dumps(document), key), record.sources


def _text(document: Any) -> str:
    # ASCII, because SQLite needs UTF-8, and half of a surrogate pair in a title has none.
    return json.dumps(strictjson.tag_nonfinite(document))


def _parsed(text: str) -> Any:
    document = json.loads(text)
    if '"nonfinite"' in text:
        document = strictjson.untag_nonfinite(document)
    return document


def _measured(record: Record) -> Iterator[tuple[str, tuple[float, str]]]:
    units: dict[str, str] = {}
    for clause in record.clauses:
        if isinstance(clause.value, Mapping):
            read = clause.value if clause.bound is not None and clause.bound.keyword == RULE else {}
            for name, value in read.items():
                if _is_number(value) and name not in units:
                    yield name, (value, "")
        elif _is_number(clause.value) and not clause.id.startswith("resolved."):
            place, _, keyword = clause.id.rpartition(".")
            items = "[]" in place or "{}" in place
            name = clause.id if items or clause.id.startswith("residency.") else place
            if name and name not in units and not (items and keyword == "type"):
                units[name] = clause.unit
                yield name, (clause.value, clause.unit)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _walk(root: Path) -> Iterator[tuple[bytes, str]]:
    """Yield the relative path of every bundle below a folder, with its fingerprint: "! …" names a problem."""
    pending: list[tuple[str, int]] = [(".", 0)]
    while pending:
        name, depth = pending.pop()
        folder = f"{root}/{name}"
        try:
            where = identity(f"{folder}/{RECORD}")
            try:
                where += f" {identity(f'{folder}/{MANIFEST}')}"
            except FileNotFoundError:
                where = f"! {MANIFEST} is missing"
            yield os.fsencode(name), where
            continue
        except FileNotFoundError:
            pass
        except OSError as error:
            yield os.fsencode(name), f"! {error.strerror}"
            continue
        try:
            with os.scandir(folder) as scanned:
                inside = list(scanned)
        except FileNotFoundError:
            continue  # there is no evidence yet, or the folder was just removed
        except OSError as error:
            yield os.fsencode(name), f"! {error.strerror}"
            continue
        if any(entry.name in (MANIFEST, OBSERVATION) for entry in inside):
            yield os.fsencode(name), f"! {RECORD} is missing"
        elif depth < DEEPEST:
            folders = [entry.name for entry in inside if entry.is_dir(follow_symlinks=False)]
            pending += [(f"{name}/{one}", depth + 1) for one in folders if not one.startswith(UNFINISHED)]


def whole_runs(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the runs that measured something with the contract's parameters, the oldest first."""
    for entry in sorted(entries, key=lambda one: one.started):
        if entry.trial_seconds > 0 and entry.verdict is not Verdict.NOT_MEASURED and not entry.overrides:
            yield entry


def past_runs(entries: Iterable[Entry]) -> dict[tuple[str, str, str, str], float]:
    """Return the seconds of the newest run by claim, profile, class of device and subject. Its mutants ran, too."""
    return {
        (entry.id, entry.profile, str(entry.device_class), entry.subject): entry.seconds
        for entry in whole_runs(entries)
        if not entry.mutants_skipped
    }
