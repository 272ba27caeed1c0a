"""The record of one run of one claim, from which indexes and reports are made."""

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
    """The commit of the project's checkout. Unknown values are None."""

    revision: str | None
    dirty: bool | None
    reason: str | None
    """Why `revision` or `dirty` is None."""


class LogIdentity(TypedDict):
    """Size and digest of a whole stream. The bundle contains only its beginning and end."""

    size: int
    """Bytes."""
    sha256: str


class Logs(TypedDict):
    """The streams of the subject's trial."""

    log: NotRequired[LogIdentity]
    """The trial's log. Bundles of older versions have none."""
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
        """Return the part that judging derives."""
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
    """The claim, as in the contract."""
    run: str
    """The name of the bundle's folder: start time, device and six random digits."""
    verdict: Verdict
    reason: Reason | None
    """The reason for the verdict; None for a proven PASS."""
    proven: bool
    profile: str
    profile_reason: str
    overrides: JsonObject
    """Overridden parameters. With any, the run does not test the contract's claim."""
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
    """Wall-clock time of the claim's imports and trials, without waits."""
    trial_seconds: float
    """Wall-clock time of the subject's trial."""
    contract_digest: str
    sources: Mapping[str, str]
    """SHA-256 of each project file that the trials imported or read beside an imported file, by path."""
    harness: Mapping[str, str]
    """`version`, the `sha256` over the harness's source files, and the `commit` of its source tree if it has one."""
    commit: RecordedCommit
    logs: Logs
    series: JsonObject
    """For metrics and telemetry: the number of recorded and stored rows, and why readings are missing."""
    command: str
    """The command that reproduces the run."""
    subject_parameters: JsonObject = field(default_factory=dict)
    """Parameters of the subject's trial only: an external trainer's file and its own parameters."""
    isolated: bool = False
    """Whether each subject ran in a process apart from its falsifier."""
    waited_seconds: float = 0.0
    """Seconds that trials waited for a device."""
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    """Why GPUs were given up, by UUID. The claim then ran on another one, if it could."""
    predicted: JsonObject = field(default_factory=dict)
    """Predicted and measured memory of the profile's step; empty if the profile names no step."""
    unjudged: tuple[str, ...] = ()
    """Ids of the contract's clauses without an outcome: the profile omits a measurement that they read."""
    limit_seconds: float = 0.0
    """The wall-clock limit of the subject's trial; 0 in a record of an earlier version."""
    pace: float = 1.0
    """The factor of the contract's limit, because the device is slower than an H200."""

    @property
    def judged(self) -> str:
        """The subject as a value of `--subject`."""
        return judged(self.subject, self.subject_parameters)

    @property
    def lived(self) -> bool:
        """Whether a mutant was not killed as declared."""
        return any(mutant.fate in (Fate.SURVIVED, Fate.MISATTRIBUTED) for mutant in self.mutants)

    @property
    def result(self) -> Result:
        """The part of the result that a known refutation predicts."""
        failed = tuple(clause.id for clause in self.clauses if clause.outcome is Outcome.FAIL)
        return Result(self.verdict, failed, self.lived)

    def refutation(self, contract: Contract) -> Refutation | None:
        """Return the contract's known refutation that applies to this run.

        None if there is none, and for a run of another subject or with other parameters.
        """
        if self.overrides or self.subject != contract.document["subject"]:
            return None
        return refutation_of(contract.refuted, str(DeviceClass.of(self.device)), self.profile)

    @property
    def is_outside(self) -> bool:
        """Whether the subject is external, such as a command or a finished run."""
        return "trainer" in self.subject_parameters and self.subject.partition(":")[0].endswith(".external")

    @property
    def not_visible(self) -> tuple[str, ...]:
        """Clauses that an external trainer leaves undecided: unjudged, or on values that are not read back."""
        if not self.is_outside:
            return ()
        return (*self.unjudged, *(clause.id for clause in self.clauses if _only_told(clause)))

    @property
    def lacks_only_not_visible(self) -> bool:
        """Whether all clauses hold except `not_visible`, with mutants killed or skipped."""
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
        """`unjudged` for reports: the ids of the clauses, and the number of clauses on types."""
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
    """Whether a clause on a resolved value is NOT_MEASURED because the value was not read back."""
    reason = clause.reason
    return clause.outcome is Outcome.NOT_MEASURED and reason is not None and reason.code is ReasonCode.NOT_READ_BACK


def examined(subject: str, subject_parameters: JsonObject) -> str:
    """Return the subject and its parameters as command-line options, without the folder of a finished run."""
    own = sorted((name, value) for name, value in subject_parameters.items() if name not in ("trainer", "dir"))
    return " ".join([judged(subject, subject_parameters), *(f"-P {name}={value}" for name, value in own)])


def judged(subject: str, subject_parameters: JsonObject) -> str:
    """Return the subject as a value of `--subject`: an entry point, `command:FILE` or `recorded:FILE`."""
    trainer = subject_parameters.get("trainer")
    return f"{subject.rpartition(':')[2].lower()}:{trainer}" if trainer else subject
