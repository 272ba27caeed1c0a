"""What happens during a run, as plain records. The engine emits them; the terminal, JSON and JUnit listen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.base.device import Device
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.judging.judge import Judgment
from harness.judging.record import Record
from harness.judging.verdict import MutantOutcome

__all__ = [
    "SUBJECT",
    "ClaimFinished",
    "ClaimPassedOver",
    "ClaimPlanned",
    "ClaimWaiting",
    "Event",
    "Handler",
    "RunFinished",
    "RunStarted",
    "TrialFinished",
    "TrialStarted",
    "TrialStep",
]

SUBJECT = "subject"
"""The name of the subject's own trial; a mutant's trial has the mutant's id."""


@dataclass(frozen=True)
class ClaimPassedOver:
    """A claim was asked for and is not due (`run --stale`); these come before the run begins."""

    id: str
    verdict: Verdict
    """What stands without a run: of the evidence that covers the claim, or NOT_MEASURED where it cannot run here."""
    reason: str


@dataclass(frozen=True)
class RunStarted:
    """A run begins."""

    claims: tuple[str, ...]


@dataclass(frozen=True)
class ClaimPlanned:
    """It is decided how a claim is run here."""

    contract: Contract
    profile: str
    reason: str
    """Why this profile."""
    device: Device
    mutants: tuple[str, ...]
    """The ids of the mutants that will run."""
    parallel: int
    """How many trials run side by side."""
    obstacle: str = ""
    """Why no trial runs at all; empty where some do."""


@dataclass(frozen=True)
class ClaimWaiting:
    """The claim's device is taken."""

    id: str
    holders: tuple[str, ...]


@dataclass(frozen=True)
class TrialStarted:
    """A trial's process is about to start."""

    id: str
    trial: str
    steps: int | None
    """How many steps it is asked for, where the claim has steps."""


@dataclass(frozen=True)
class TrialStep:
    """A trial has made a step."""

    id: str
    trial: str
    step: int
    values: JsonObject
    memory_bytes: int | None
    """Of the process: on the GPU where it has one, else resident."""


@dataclass(frozen=True)
class TrialFinished:
    """A trial has ended and was judged."""

    id: str
    trial: str
    judgment: Judgment
    mutant: MutantOutcome | None
    seconds: float
    traceback: str = ""
    """Of the exception that ended it, its secrets masked; empty where there was none."""


@dataclass(frozen=True)
class ClaimFinished:
    """A claim has its verdict, and its bundle is sealed."""

    record: Record
    bundle: Path | None
    """None where the bundle could not be written; the record's reason says so."""


@dataclass(frozen=True)
class RunFinished:
    """A run is over."""

    declared: int
    records: tuple[Record, ...]
    seconds: float
    interrupted: bool
    awaited: str = ""
    """Who held the device, where the interruption ended the wait for it."""


Event = (
    ClaimPassedOver
    | RunStarted
    | ClaimPlanned
    | ClaimWaiting
    | TrialStarted
    | TrialStep
    | TrialFinished
    | ClaimFinished
    | RunFinished
)
Handler = Callable[[Event], None]
