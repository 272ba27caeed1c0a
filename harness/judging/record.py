"""The record of one run of one claim, which indexes, reports and reviewers read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NotRequired, TypedDict

from harness.base.device import Device, DeviceClass, Target
from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract import Contract
from harness.contract.clauses import ClauseResult
from harness.contract.contract_annotations import Refutation, Result, refutation_of
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.verdict import MutantOutcome

__all__ = ["LogIdentity", "Logs", "MutantRecord", "Record", "RecordedCommit", "judged"]


class RecordedCommit(TypedDict):
    """The commit of the project's checkout. A value that git could not give is None."""

    revision: str | None
    dirty: bool | None
    reason: str | None
    """Why `revision` or `dirty` is None."""


class LogIdentity(TypedDict):
    """The size and digest of a whole stream. The bundle keeps only its beginning and end."""

    size: int
    """Bytes."""
    sha256: str


class Logs(TypedDict):
    """The streams of the subject's trial."""

    log: NotRequired[LogIdentity]
    """What the trial did. Bundles of older versions have none."""
    stdout: LogIdentity
    stderr: LogIdentity


@dataclass(frozen=True)
class MutantRecord(JsonDataclass):
    """One line of the kill table."""

    id: str
    subject: str
    defect: str
    violates: tuple[str, ...]
    fate: Fate
    reason: Reason | None
    failed: tuple[str, ...]
    seconds: float | None
    """Wall-clock time of its trial; None if it did not run."""
    values: JsonObject = field(default_factory=dict)
    """The value that decided each clause of `failed`; empty in a record of an earlier version."""

    def outcome(self) -> MutantOutcome:
        """The part that judging decides."""
        return MutantOutcome(self.id, self.fate, self.reason, self.failed, self.values)


@dataclass(frozen=True)
class Record(JsonDataclass):
    """Everything about a run except its measurements, series and logs."""

    SCHEMA: ClassVar = "record"
    FORMAT: ClassVar = 2

    id: str
    issue: str
    spec: str
    title: str
    claim: str
    """What is claimed, in the contract's words."""
    run: str
    """The name of the bundle's folder: start time, device and six random digits."""
    verdict: Verdict
    reason: Reason | None
    """Why the verdict is what it is; None for a proven PASS."""
    proven: bool
    profile: str
    profile_reason: str
    overrides: JsonObject
    """Parameters that the command line changed. With any, the run does not test the contract's claim."""
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
    """Wall-clock time in which the claim's imports and trials ran. Its waits do not count."""
    trial_seconds: float
    """Wall-clock time of the subject's trial."""
    contract_digest: str
    sources: Mapping[str, str]
    """The sha256 of each project file that the trials imported or read beside an imported file, by path."""
    harness: Mapping[str, str]
    """`version`, the `sha256` over the harness's source files, and the `commit` of its source tree if it has one."""
    commit: RecordedCommit
    logs: Logs
    series: JsonObject
    """For metrics and telemetry: how many rows were recorded and kept, and why readings are missing."""
    command: str
    """The command that reproduces the run."""
    subject_parameters: JsonObject = field(default_factory=dict)
    """Parameters of the subject's trial alone. Only an external trainer has them: its file and its own parameters."""
    isolated: bool = False
    """Whether each subject ran in a process of its own, apart from its falsifier."""
    waited_seconds: float = 0.0
    """How long trials waited for a device that others held."""
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    """Why GPUs failed the claim, by UUID. It then ran again on another one, if it could."""
    predicted: JsonObject = field(default_factory=dict)
    """The memory of the profile's step, predicted before the run and measured; empty if the profile names no step."""
    unjudged: tuple[str, ...] = ()
    """Ids of the contract's clauses without an outcome: the profile omits a measurement that they read."""
    limit_seconds: float = 0.0
    """The wall-clock limit of the subject's trial; 0 in a record of an earlier version."""
    pace: float = 1.0
    """By how much the contract's limit was multiplied, because the device is slower than an H200."""

    @property
    def judged(self) -> str:
        """The subject as `--subject` takes it."""
        return judged(self.subject, self.subject_parameters)

    @property
    def lived(self) -> bool:
        """Whether a mutant was not killed as declared."""
        return any(mutant.fate in (Fate.SURVIVED, Fate.MISATTRIBUTED) for mutant in self.mutants)

    @property
    def result(self) -> Result:
        """The part of the result that a known refutation states."""
        failed = tuple(clause.id for clause in self.clauses if clause.outcome is Outcome.FAIL)
        return Result(self.verdict, failed, self.lived)

    def refutation(self, contract: Contract) -> Refutation | None:
        """The refutation of a contract that speaks of this run.

        None if there is none, and for a run of another subject than the contract's or with other parameters.
        """
        if self.overrides or self.subject != contract.document["subject"]:
            return None
        return refutation_of(contract.refuted, str(DeviceClass.of(self.device)), self.profile)

    @property
    def is_outside(self) -> bool:
        """Whether the subject works in another process, such as a command or a finished run."""
        return "trainer" in self.subject_parameters and self.subject.partition(":")[0].endswith(".external")

    @property
    def not_visible(self) -> tuple[str, ...]:
        """Clauses that cannot be decided from outside a trainer: not judged, or on what only its output tells."""
        return (
            (*self.unjudged, *(clause.id for clause in self.clauses if _only_told(clause))) if self.is_outside else ()
        )

    @property
    def lacks_only_not_visible(self) -> bool:
        """Whether all but what is not visible from outside was measured and holds, with mutants killed."""
        open_ones = [clause for clause in self.clauses if clause.outcome is not Outcome.PASS]
        is_shown = self.is_outside and self.verdict is Verdict.NOT_MEASURED and all(map(_only_told, open_ones))
        return is_shown and bool(open_ones) and (self.proven or self.mutants_skipped)

    @property
    def fates(self) -> Counter[Fate]:
        """The number of mutants by fate, in the order of `Fate`."""
        counts = Counter(mutant.fate for mutant in self.mutants)
        return Counter({fate: counts[fate] for fate in Fate if counts[fate]})

    @property
    def left_out(self) -> str:
        """`unjudged` for reports: the ids of the clauses, and the number of those that only check a type."""
        telling = [clause for clause in self.unjudged if not clause.endswith((".type", ".closed"))]
        mere = len(self.unjudged) - len(telling)
        if not telling or not mere:
            return ", ".join(self.unjudged)
        return f"{', '.join(telling)} and {mere} on types"

    @property
    def on_target(self) -> bool:
        """Whether the run used the hardware that the claim names. True if the claim names none."""
        return not self.target or DeviceClass.of(self.device).meets(self.target)


def _only_told(clause: ClauseResult) -> bool:
    """Whether a clause on what ran has no outcome, because only the output could tell it."""
    reason = clause.reason
    return clause.outcome is Outcome.NOT_MEASURED and reason is not None and reason.code is ReasonCode.NOT_READ_BACK


def examined(subject: str, subject_parameters: JsonObject) -> str:
    """The subject and its own parameters, as options take them. Where a finished run lies does not matter."""
    own = sorted((name, value) for name, value in subject_parameters.items() if name not in ("trainer", "dir"))
    return " ".join([judged(subject, subject_parameters), *(f"-P {name}={value}" for name, value in own)])


def judged(subject: str, subject_parameters: JsonObject) -> str:
    """The subject as `--subject` takes it: an entry point, or `command:FILE` or `recorded:FILE`."""
    trainer = subject_parameters.get("trainer")
    return f"{subject.rpartition(':')[2].lower()}:{trainer}" if trainer else subject
