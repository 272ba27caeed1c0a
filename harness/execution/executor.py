"""Executors run trials somewhere. `local` runs them on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.base.device import Device
from harness.base.strictjson import JsonObject
from harness.contract import Contract
from harness.execution.logs import Log
from harness.execution.messages import Imports
from harness.execution.steps import Steps
from harness.judging.observation import Observation
from harness.machine.telemetry import Telemetry

__all__ = ["Executor", "StepListener", "TrialRequest", "TrialResult"]

StepListener = Callable[[int, JsonObject, int | None], None]
"""Takes a step's number, what the falsifier recorded of it, and the process's memory in bytes."""


@dataclass(frozen=True)
class TrialRequest:
    """One falsifier against one subject, with everything that determines the work."""

    contract: Contract
    subject: str
    """The entry point of the subject or of a mutant."""
    profile: str
    parameters: JsonObject
    device: Device
    seed: int
    seconds: float
    """Wall-clock limit."""
    threads: int
    """CPU threads that the trial may use."""
    case: JsonObject | None = None
    """Where the falsifier searches: the only case that it is to try."""


@dataclass(frozen=True)
class TrialResult:
    """What came of a trial."""

    observation: Observation
    steps: Steps
    """The step series: `step`, `seconds` since the start, and what the falsifier recorded."""
    telemetry: Telemetry
    stdout: Log
    stderr: Log
    artifacts: Path | None
    """A folder with the small files that the falsifier left; None where no trial ran."""
    seconds: float
    """Wall-clock time from the fork to the trial's last word."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of every source file of the project that only this trial imported or read, by path."""


class Executor(Protocol):
    """Where trials of one claim run. Leaving the context ends every process and removes what they left behind."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *exception: object) -> None: ...

    def imports(self) -> Imports:
        """What was imported for the contract's entry points."""
        ...

    def run(self, request: TrialRequest, on_step: StepListener) -> TrialResult:
        """Run one trial to its end. Callable from several threads at once; never raises for what the trial does."""
        ...

    def interrupt(self) -> None:
        """End every running trial; what they measured is still returned."""
        ...
