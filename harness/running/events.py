"""The events of a run, and the relay that passes them from the engine to the handlers."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.device import Device
from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.contract.reasons import ReasonCode
from harness.judging.judge import Judgment
from harness.judging.record import Record
from harness.judging.verdict import MutantOutcome

if TYPE_CHECKING:
    from harness.running.plan import Plan

__all__ = [
    "SUBJECT",
    "ClaimEnded",
    "ClaimFinished",
    "ClaimPassedOver",
    "ClaimPlanned",
    "ClaimWaiting",
    "Event",
    "Handler",
    "Relay",
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
    """The verdict of the covering evidence; NOT_MEASURED if the claim cannot run here."""
    reason: str
    is_news: bool = False
    """Whether the evidence contradicts the contract: a FAIL without a known refutation, or a PASS despite one."""


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
    """Why this profile was chosen."""
    device: Device
    mutants: tuple[str, ...]
    """The ids of the mutants that will run."""
    obstacle: str = ""
    """Why no trial runs; empty if trials run."""
    limit_seconds: float = 0.0
    """The time limit of a trial."""
    pace: float = 1.0
    """The factor of the contract's limit for this device."""

    @classmethod
    def of(cls, plan: Plan) -> ClaimPlanned:
        """Return the event for a plan."""
        runnable = tuple(mutant.id for mutant, obstacle in plan.mutants if not obstacle)
        return cls(
            plan.contract,
            plan.profile.name,
            plan.reason,
            plan.device,
            runnable,
            plan.obstacle,
            plan.trial().seconds,
            plan.pace,
        )


@dataclass(frozen=True)
class ClaimWaiting(JsonDataclass):
    """A trial waits for a device. Meanwhile, other trials of the run use the other resources."""

    id: str
    holders: tuple[str, ...]
    """For each holder: claim or command, process, user, and start."""
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
    """A trial has started another kind of work."""

    id: str
    trial: str
    doing: str
    """The work, such as "importing"."""


@dataclass(frozen=True)
class TrialStep(JsonDataclass):
    """A trial has completed a step."""

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
    """A message for the user that affects no verdict."""

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
    """Why no bundle was written on purpose: the claim is a scaffold with TODO markers."""


@dataclass(frozen=True)
class ClaimEnded(JsonDataclass):
    """A claim has ended in another process. Its verdict comes from its bundle alone."""

    id: str
    run: str
    """The name of the bundle's folder."""
    unsealed: str = ""
    """Why there is no bundle; empty if there is one."""

    @classmethod
    def of(cls, finished: ClaimFinished) -> ClaimEnded:
        """Return the reference to the bundle of an event."""
        record, unsealed = finished.record, finished.unsealed
        if record.reason is not None and record.reason.code is ReasonCode.UNSEALED:
            unsealed = f"the bundle could not be written: {record.reason.text}"
        return cls(record.id, record.run, unsealed)


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
    | ClaimEnded
    | ClaimFinished
    | RunFinished
)
Handler = Callable[[Event], None]

_BACKLOG = 10_000
"""Maximum waiting events. Beyond it, steps are dropped, because only the newest matter."""


class Relay:
    """A handler that passes every event to other handlers, one at a time and in order, in its own thread.

    Otherwise a stopped terminal or a waiting pager would block the reports of trials, and a blocked trial looks like a
    hang. A handler that raises gets no further events. Its exception is kept.
    """

    def __init__(self, handlers: Sequence[Handler]) -> None:
        self._handlers = list(handlers)
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._failures: list[tuple[Handler, Exception]] = []
        self._thread = threading.Thread(target=self._pass_on, name="reports", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Enqueue an event, from any thread. Never blocks."""
        if not isinstance(event, TrialStep) or self._events.qsize() < _BACKLOG:
            self._events.put(event)

    def close(self) -> Sequence[tuple[Handler, Exception]]:
        """Wait until all events are passed on. Return the handlers that raised, each with its exception."""
        self._events.put(None)
        self._thread.join()
        return self._failures

    def _pass_on(self) -> None:
        while (event := self._events.get()) is not None:
            for handler in list(self._handlers):
                try:
                    handler(event)
                except Exception as error:
                    self._handlers.remove(handler)
                    self._failures.append((handler, error))
