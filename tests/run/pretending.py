"""An engine with a simulated executor: its trials measure what a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import TracebackType
from typing import Any

from harness.base.redaction import Redactor
from harness.contract import Contract
from harness.evidence.seal import ClaimResult
from harness.execution.executor import Executor, StepListener, TrialRequest, TrialResult
from harness.execution.logs import Log, Steps
from harness.execution.messages import Imports
from harness.execution.trial_log import TrialLog
from harness.judging.observation import Ending, EndingKind, Observation, Residency
from harness.judging.record import Record
from harness.machine.telemetry import DriverResidency, Telemetry
from harness.running import events
from harness.running.engine import Engine
from harness.running.request import RunRequest
from tests.contracts import healthy

HEALTHY, BROKEN = healthy(), healthy(returned=2)
Behaviour = Callable[[TrialRequest], Mapping[str, Any] | Ending]


@dataclass
class Pretender:
    """An executor whose trials measure what `behave` returns."""

    behave: Behaviour
    importing: Callable[[], None] = lambda: None
    interrupted: threading.Event = field(default_factory=threading.Event)
    started: list[str] = field(default_factory=list)
    closed: bool = False

    def __enter__(self) -> Pretender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.closed = True

    def imports(self) -> Imports:
        self.importing()
        return Imports({}, {"demo.py": "0" * 64})

    def interrupt(self) -> None:
        self.interrupted.set()

    def run(self, request: TrialRequest, on_step: StepListener) -> TrialResult:
        self.started.append(request.subject)
        said = self.behave(request)
        measured, ending = ({}, said) if isinstance(said, Ending) else (said, Ending(EndingKind.COMPLETED))
        observation = Observation(
            request.subject,
            request.profile,
            request.parameters,
            request.device,
            measured,
            {"device": request.device.type, "steps": request.parameters["steps"]},
            Residency(1, True, 1) if request.device.is_cuda else Residency(reason="no GPU was leased"),
            ending=ending,
            seed=request.seed,
        )
        silent = Telemetry((), {}, DriverResidency(None, None, "pretended"))
        empty = Log("", 0, sha256(b"").hexdigest())
        did = TrialLog(time.monotonic(), str)
        did.end(ending)
        return TrialResult(observation, Steps(), silent, did.close(Redactor({})), empty, empty, None, 0.0)


@dataclass
class Pretenders:
    """Makes executors."""

    make: Callable[[], Executor]

    def __call__(self, contract: Contract) -> Executor:
        return self.make()

    def close(self) -> None:
        pass


@dataclass
class Bench:
    """An engine with everything that it needs."""

    engine: Engine
    contract: Contract
    executor: Pretender
    heard: list[events.Event]
    sealed: list[ClaimResult]

    def run(self, *contracts: Contract, **options: Any) -> events.RunFinished:
        """Run the claim, or the given ones."""
        return self.engine.run(RunRequest(contracts or (self.contract,), **options))


def honest(request: TrialRequest) -> Mapping[str, Any]:
    """The subject is healthy; the mutants are not."""
    return HEALTHY if request.subject.endswith(":Sorter") else BROKEN


def only(finished: events.RunFinished) -> Record:
    """The record of the only claim."""
    (record,) = finished.records
    return record
