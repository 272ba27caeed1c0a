"""The record of one run of one claim: what an index, a report and a reviewer read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from harness.base import schemas, strictjson
from harness.base.device import Device, DeviceClass, Target
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Fate, Verdict
from harness.contract.clauses import ClauseResult
from harness.contract.reasons import Reason
from harness.judging.verdict import MutantOutcome

__all__ = ["FORMAT", "LogIdentity", "Logs", "MutantRecord", "Record", "RecordError", "RecordedCommit", "judged"]

FORMAT = 2


class RecordError(ValueError):
    """A file is not a record; the message names the place."""


class RecordedCommit(TypedDict):
    """The commit of the project's checkout. What git could not tell is None."""

    revision: str | None
    dirty: bool | None
    reason: str | None
    """Why `revision` or `dirty` is None."""


class LogIdentity(TypedDict):
    """The whole of a stream that a trial wrote; the bundle keeps its head and tail."""

    size: int
    """Bytes."""
    sha256: str


class Logs(TypedDict):
    """The streams of the subject's trial."""

    stdout: LogIdentity
    stderr: LogIdentity


@dataclass(frozen=True)
class MutantRecord:
    """One line of the kill table."""

    id: str
    subject: str
    defect: str
    violates: tuple[str, ...]
    fate: Fate
    reason: Reason | None
    failed: tuple[str, ...]
    seconds: float | None
    """Wall-clock time of its trial; None where it did not run."""

    def to_json(self) -> dict[str, Any]:
        """The form that a record holds."""
        return {**vars(self), "reason": self.reason and self.reason.to_json()}

    def outcome(self) -> MutantOutcome:
        """The part of it that judging decides."""
        return MutantOutcome(self.id, self.fate, self.reason, self.failed)


@dataclass(frozen=True)
class Record:
    """Everything that is known about a run without opening another file of its bundle."""

    id: str
    issue: str
    spec: str
    title: str
    claim: str
    """What is claimed, in the contract's words."""
    run: str
    """Names the bundle's folder: when, on what, and six random digits."""
    verdict: Verdict
    reason: Reason | None
    """Why; None for a proven PASS."""
    proven: bool
    profile: str
    profile_reason: str
    overrides: JsonObject
    """Parameters that the command line changed; the run then speaks of another claim than the contract's."""
    mutants_skipped: bool
    falsifier: str
    subject: str
    target: Target
    device: Device
    requested: JsonObject
    resolved: JsonObject
    seed: int
    clauses: tuple[ClauseResult, ...]
    mutants: tuple[MutantRecord, ...]
    started: str
    """UTC, ISO 8601."""
    seconds: float
    """Wall-clock time of the whole run, from the plan to the last trial."""
    trial_seconds: float
    """Wall-clock time of the subject's trial."""
    contract_digest: str
    sources: Mapping[str, str]
    """sha256 of every file of the project that the trials imported, or read beside what they imported, by path."""
    harness: Mapping[str, str]
    """version, and the sha256 over the harness's own source files."""
    commit: RecordedCommit
    logs: Logs
    series: JsonObject
    """How the trial was watched: of metrics and telemetry how many rows were recorded and kept, and why readings are
    missing."""
    command: str
    """What to type to reproduce the run."""
    subject_parameters: JsonObject = field(default_factory=dict)
    """Parameters of the subject's trial alone, where it is somebody else's trainer: which one, and its own."""
    unjudged: tuple[str, ...] = ()
    """The contract's clauses that have no outcome, because this profile omits what they look at."""

    @property
    def judged(self) -> str:
        """The subject as `--subject` takes it."""
        return judged(self.subject, self.subject_parameters)

    @property
    def left_out(self) -> str:
        """What a reader is told of `unjudged`: the names, and how many mere types there are."""
        telling = [clause for clause in self.unjudged if not clause.endswith((".type", ".closed"))]
        mere = len(self.unjudged) - len(telling)
        if not telling or not mere:
            return ", ".join(self.unjudged)
        return f"{', '.join(telling)} and {mere} on types"

    @property
    def on_target(self) -> bool:
        """Whether it was measured on the hardware that the claim names; one that names none holds for any."""
        return not self.target or DeviceClass.of(self.device).meets(self.target)

    def to_json(self) -> dict[str, Any]:
        """The form that record.json holds."""
        plain = {
            "format": FORMAT,
            **vars(self),
            "reason": self.reason and self.reason.to_json(),
            "device": self.device.to_json(),
            "clauses": [clause.to_json() for clause in self.clauses],
            "mutants": [mutant.to_json() for mutant in self.mutants],
        }
        tagged: dict[str, Any] = strictjson.tag_nonfinite(plain)
        return tagged

    @classmethod
    def from_json(cls, document: Any) -> Record:
        """The inverse of `to_json`.

        Raises:
            RecordError: the document is not of the record schema.
        """
        found = schemas.problems("record", document)
        if found:
            raise RecordError("; ".join(map(str, found[:5])))
        plain = strictjson.untag_nonfinite(document)
        del plain["format"]
        clauses = tuple(ClauseResult.from_json(clause) for clause in plain.pop("clauses"))
        mutants = tuple(_mutant(mutant) for mutant in plain.pop("mutants"))
        plain |= {"verdict": Verdict(plain["verdict"]), "unjudged": tuple(plain.get("unjudged", ()))}
        plain |= {"device": Device.from_json(plain["device"]), "reason": Reason.from_json(plain["reason"])}
        return cls(**plain, clauses=clauses, mutants=mutants)


def judged(subject: str, subject_parameters: JsonObject) -> str:
    """What a run judged, as `--subject` takes it: an entry point, or how somebody else's trainer was looked at."""
    trainer = subject_parameters.get("trainer")
    return f"{subject.rpartition(':')[2].lower()}:{trainer}" if trainer else subject


def _mutant(document: dict[str, Any]) -> MutantRecord:
    lists = {name: tuple(document[name]) for name in ("violates", "failed")}
    changed = {"fate": Fate(document["fate"]), "reason": Reason.from_json(document["reason"])}
    return MutantRecord(**{**document, **lists, **changed})
