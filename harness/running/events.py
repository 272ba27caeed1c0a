"""The events of a run, as plain records. The engine emits them for the terminal, JSON and JUnit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.device import Device
from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.judging.judge import Judgment
from harness.judging.record import Record
from harness.judging.verdict import MutantOutcome

if TYPE_CHECKING:
    from harness.running.plan import Plan

__all__ = [
    "SUBJECT",
    "ClaimFinished",
    "ClaimPassedOver",
    "ClaimPlanned",
    "ClaimWaiting",
    "Event",
    "Handler",
    "Remarked",
    "RunFinished",
    "RunStarted",
    "TrialFinished",
    "TrialPhase",
    "TrialStarted",
    "TrialStep",
]

SUBJECT = "subject"
"""The name of the subject's trial. A mutant's trial has the mutant's id."""


@dataclass(frozen=True)
class ClaimPassedOver:
    """A requested claim is not due (`run --stale`). These events come before the run begins."""

    id: str
    verdict: Verdict
    """The verdict without a run: that of the evidence that covers the claim, or NOT_MEASURED if it cannot run here."""
    reason: str


@dataclass(frozen=True)
class RunStarted:
    """A run begins."""

    claims: tuple[str, ...]


@dataclass(frozen=True)
class ClaimPlanned:
    """A claim has a plan."""

    contract: Contract
    profile: str
    reason: str
    """Why this profile."""
    device: Device
    mutants: tuple[str, ...]
    """The ids of the mutants that will run."""
    obstacle: str = ""
    """Why no trial runs; empty if one does."""

    @classmethod
    def of(cls, plan: Plan) -> ClaimPlanned:
        """Return the event that tells of a plan."""
        runnable = tuple(mutant.id for mutant, obstacle in plan.mutants if not obstacle)
        return cls(plan.contract, plan.profile.name, plan.reason, plan.device, runnable, plan.obstacle)


@dataclass(frozen=True)
class ClaimWaiting(JsonDataclass):
    """A trial waits for a device that others hold. Meanwhile, other trials of the run use the other resources."""

    id: str
    holders: tuple[str, ...]
    """Each in words: the claim or command, its process and user, and since when."""
    trial: str = SUBJECT
    device: str = ""
    """The name of the device."""


@dataclass(frozen=True)
class TrialStarted(JsonDataclass):
    """A trial's process is about to start."""

    id: str
    trial: str
    steps: int | None
    """The requested number of steps; None if the claim has none."""


@dataclass(frozen=True)
class TrialPhase(JsonDataclass):
    """A trial does something else than before."""

    id: str
    trial: str
    doing: str
    """What it does, such as "importing", or the functions of the project that run: "train > compile"."""


@dataclass(frozen=True)
class TrialStep(JsonDataclass):
    """A trial has made a step."""

    id: str
    trial: str
    step: int
    values: JsonObject
    memory_bytes: int | None
    """The process's memory in bytes: on the GPU if it has one, else resident."""


@dataclass(frozen=True)
class TrialFinished(JsonDataclass):
    """A trial has ended and was judged."""

    id: str
    trial: str
    judgment: Judgment
    mutant: MutantOutcome | None
    seconds: float
    traceback: str = ""
    """The traceback of the exception that ended it, with secrets masked; empty if there was none."""


@dataclass(frozen=True)
class Remarked(JsonDataclass):
    """Something that the user may want to know, and that no verdict depends on."""

    id: str
    text: str


@dataclass(frozen=True)
class ClaimFinished(JsonDataclass):
    """A claim has its verdict, and its bundle is sealed."""

    record: Record
    bundle: Path | None
    """None if no bundle was written; the record's reason says why, or `unsealed`."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """The ratio of the measurement to the threshold of each clause that has one (`harness.contract.ratio`)."""
    unsealed: str = ""
    """Why nothing was sealed although it could be: the claim is a scaffold that is not filled in."""


@dataclass(frozen=True)
class RunFinished:
    """A run is over."""

    declared: int
    records: tuple[Record, ...]
    seconds: float
    interrupted: bool
    awaited: str = ""
    """The holders of the device, if the interruption ended a wait for it; else empty."""


Event = (
    ClaimPassedOver
    | RunStarted
    | ClaimPlanned
    | ClaimWaiting
    | TrialStarted
    | TrialPhase
    | TrialStep
    | TrialFinished
    | Remarked
    | ClaimFinished
    | RunFinished
)
Handler = Callable[[Event], None]
