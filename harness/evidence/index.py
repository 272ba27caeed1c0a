"""The index over evidence: what every record.json says, kept in a cache that mends itself.

    contents = read(project.evidence)
    for entry in contents.entries:
        print(entry.verdict, entry.id, entry.device_class, entry.path)

Of each bundle only record.json is looked at, and whether it is the one that the manifest seals; `harness verify` does
the rest. A bundle is read again where one of the two is another file than it was (inode, size, times); one that
vanished is forgotten. The cache
is a SQLite file that several commands may use at once. Where it is damaged it is made anew, and where it cannot be
written, the answer is the same and takes longer.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, final

from harness.base import strictjson
from harness.base.device import Device, DeviceClass, Target
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Fate, Verdict
from harness.contract.bound import RULE
from harness.contract.reasons import Reason
from harness.evidence.bundle import Bundle, BundleError
from harness.evidence.bundle_layout import DEEPEST, MANIFEST, OBSERVATION, RECORD, UNFINISHED
from harness.evidence.index_cache import Cache, Row, Watch
from harness.judging.record import Record, RecordedCommit, judged

__all__ = ["Contents", "Entry", "Measurement", "Unreadable", "Watch", "measurements", "measurements_of", "read"]

_FIELDS = (
    "id", "issue", "spec", "title", "run", "reason", "proven", "profile", "overrides", "mutants_skipped", "falsifier",
    "subject", "subject_parameters", "target", "device", "seed", "started", "seconds", "trial_seconds",
    "contract_digest", "harness", "commit", "command",
)  # fmt: skip
"""What an entry takes from the record as it is."""


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """One bundle, as its record tells; the fields are the record's."""

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
    """The mutants that were."""

    @property
    def judged(self) -> str:
        """The subject as `--subject` takes it."""
        return judged(self.subject, self.subject_parameters)

    @property
    def device_class(self) -> DeviceClass:
        """The class of the device that it ran on."""
        return DeviceClass.of(self.device)

    @property
    def when(self) -> datetime:
        """`started`, as a point in time."""
        return datetime.fromisoformat(self.started)


@final
@dataclass(frozen=True, slots=True)
class Unreadable:
    """A folder that should be a bundle, and whose record cannot be read or believed."""

    path: Path
    reason: str


@final
@dataclass(frozen=True, slots=True)
class Contents:
    """What lies below a folder of evidence, in the order of the paths."""

    entries: tuple[Entry, ...]
    unreadable: tuple[Unreadable, ...]


@final
@dataclass(frozen=True, slots=True)
class Measurement:
    """A number that clauses of a record looked at."""

    value: float
    """NaN and infinities included."""
    unit: str


_VERSION = zlib.crc32(repr((6, Entry.__slots__)).encode()) >> 1
"""Of what the cache holds. The number is raised where a field or a measurement comes to mean something else."""


def read(evidence: Path, claim: str | None = None, cache: Path | None = None, watch: Watch | None = None) -> Contents:
    """What the records below a folder say.

    Args:
        evidence: the project's evidence, or any folder with bundles below it; no link is followed.
        claim: only bundles of this claim.
        cache: the folder that keeps what was read before; where it is None, every record is read.
        watch: is told how many bundles were read, of how many that have to be.
    """
    evidence = evidence.absolute()

    def made(name: bytes, row: Row) -> Entry | Unreadable:
        path = evidence / os.fsdecode(name)
        if row.problem:
            return Unreadable(path, row.problem)
        told = _parsed(row.document)
        told |= {"verdict": Verdict(told["verdict"]), "killed": tuple(told["killed"])}
        told |= {"device": Device.from_json(told["device"]), "reason": Reason.from_json(told["reason"])}
        return Entry(path=path, sources=row.sources, **told)

    found = Cache(evidence, cache, _VERSION, _row).rows(dict(_walk(evidence)), claim, made, watch)
    return Contents(
        tuple(one for one in found if isinstance(one, Entry)),
        tuple(one for one in found if isinstance(one, Unreadable)),
    )


def measurements(evidence: Path, claim: str, cache: Path | None = None) -> dict[Path, dict[str, Measurement]]:
    """Every number that the clauses of a claim's bundles looked at, by bundle and name.

    A measurement is named as the contract names it (`final_loss`); of a list, of which a clause tells only the item
    nearest to its bound, the clause's own name stands (`losses[].maximum`).
    """
    evidence = evidence.absolute()

    def made(name: bytes, row: Row) -> tuple[Path, dict[str, Measurement]]:
        told = {measured: Measurement(*value) for measured, value in _parsed(row.measurements).items()}
        return evidence / os.fsdecode(name), told

    found = Cache(evidence, cache, _VERSION, _row).rows(dict(_walk(evidence)), claim, made)
    return {path: told for path, told in found if told}


def measurements_of(record: Record) -> dict[str, Measurement]:
    """The measurements of one record, named as `measurements` names them."""
    return {name: Measurement(value, unit) for name, (value, unit) in _measured(record)}


def _walk(root: Path) -> Iterator[tuple[bytes, str]]:
    """Every bundle below a folder by its relative path, with what its record.json is recognized by."""
    pending: list[tuple[str, int]] = [(".", 0)]
    while pending:
        name, depth = pending.pop()
        folder = os.path.join(root, name)
        try:
            where = _identity(os.path.join(folder, RECORD))
            try:
                where += f" {_identity(os.path.join(folder, MANIFEST))}"
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
            continue  # there is no evidence yet, or it is just being removed
        except OSError as error:
            yield os.fsencode(name), f"! {error.strerror}"
            continue
        if any(entry.name in (MANIFEST, OBSERVATION) for entry in inside):
            yield os.fsencode(name), f"! {RECORD} is missing"
        elif depth < DEEPEST:
            folders = [entry.name for entry in inside if entry.is_dir(follow_symlinks=False)]
            pending += [(os.path.join(name, one), depth + 1) for one in folders if not one.startswith(UNFINISHED)]


def _identity(path: str) -> str:
    """What a file is recognized by."""
    status = os.stat(path, follow_symlinks=False)
    kind = "" if stat.S_ISREG(status.st_mode) else " no regular file"
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}{kind}"


def _row(folder: Path, fingerprint: str) -> Row:
    """What the cache keeps of one bundle."""
    if fingerprint.startswith("!"):
        return Row(problem=fingerprint[2:])
    bundle = Bundle(folder)
    try:
        record, sealed, digest = bundle.record, bundle.manifest.get(RECORD), bundle.digest(RECORD)
        datetime.fromisoformat(record.started)
    except BundleError as error:
        return Row(problem=str(error))
    except ValueError as error:
        return Row(problem=f"{RECORD}: {error}")
    if digest != sealed:
        return Row(problem=f"{RECORD}: is not the one that {MANIFEST} seals; `harness verify` tells what else is")
    document = {name: getattr(record, name) for name in _FIELDS}
    document |= {"verdict": str(record.verdict), "device": record.device.to_json()}
    document["reason"] = record.reason and record.reason.to_json()
    document["killed"] = [mutant.id for mutant in record.mutants if mutant.fate is Fate.KILLED]
    return Row(
        claim=record.id,
        document=_text(document),
        sources=record.sources,
        measurements=_text(dict(_measured(record))),
    )


def _text(document: JsonObject) -> str:
    # ASCII: half a surrogate pair in a title is no UTF-8, which SQLite asks for.
    return json.dumps(strictjson.tag_nonfinite(document))


def _parsed(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
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
