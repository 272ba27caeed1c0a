"""The protocol of executors, which run trials. `local_executor` runs them on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.base.beneath import Beneath
from harness.base.device import Device
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import SearchEnd
from harness.contract import Contract
from harness.contract.patch import Patch
from harness.execution.logs import Log, Steps
from harness.execution.messages import Imports
from harness.judging.observation import Observation
from harness.machine.host import Gpu
from harness.machine.telemetry import Telemetry

__all__ = ["Executor", "Executors", "StepListener", "TrialRequest", "TrialResult"]

StepListener = Callable[[int, JsonObject, int | None], None]
"""Called with a step's number, its recorded values, and the process's memory in bytes."""


@dataclass(frozen=True)
class TrialRequest:
    """The input of one trial."""

    contract: Contract
    subject: str
    """The entry point of the subject or of a mutant."""
    profile: str
    parameters: JsonObject
    device: Device
    seed: int
    seconds: float
    """Wall-clock limit in seconds."""
    threads: int
    """Number of CPU threads for the trial."""
    gpu: Gpu | None = None
    """The GPU that the trial sees as cuda:0; None for none."""
    others: tuple[Gpu, ...] = ()
    """Further visible GPUs."""
    case: JsonObject | None = None
    """The only case to try, for a falsifier that searches; None for a whole search."""
    search_end: SearchEnd = SearchEnd.SIMPLEST
    """When a search stops."""
    until_violated: tuple[str, ...] = ()
    """The clauses of a mutant. A search, and the trial, end once they are all violated."""
    root: Path | None = None
    """The project, or a copy of it, from which the trial imports the code itself; None if the fork server has."""
    cache: Path | None = None
    """The trial's cache folder; None for the executor's."""
    patches: tuple[Patch, ...] = ()
    """Changes to the subject's source that make it a mutant."""
    around: Mapping[str, str] = field(default_factory=dict)
    """Entry points of context managers around the trial, each with an argument. They are called with the trial's
    `Start` and the argument."""

    def observation(self, measurements: JsonObject, **further: Any) -> Observation:
        """Return the observation of this trial, with further fields of it."""
        return Observation(
            subject=self.subject,
            profile=self.profile,
            parameters=self.parameters,
            device=self.device,
            measurements=measurements,
            seed=self.seed,
            **further,
        )


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial."""

    observation: Observation
    steps: Steps
    """The step series: `step`, `seconds` since the start, and the values that the falsifier recorded."""
    telemetry: Telemetry
    log: Log
    """What the trial did, with timestamps."""
    stdout: Log
    stderr: Log
    artifacts: Beneath | None
    """The folder with the falsifier's artifacts; None if no trial ran."""
    seconds: float
    """Wall-clock time in seconds, from the fork to the trial's last message."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each source file of the project that only this trial imported or read, by path."""


class Executor(Protocol):
    """Runs the trials of one claim. Leaving the context ends all its processes and removes their files."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *exception: object) -> None: ...

    def imports(self) -> Imports:
        """The imports of the contract's entry points."""
        ...

    def run(self, request: TrialRequest, on_step: StepListener) -> TrialResult:
        """Run one trial to its end. Thread-safe. Never raises because of the trial's own behaviour."""
        ...

    def interrupt(self) -> None:
        """End every running trial. Their measurements are still returned."""
        ...


class Executors(Protocol):
    """Creates the executor of each claim of a run."""

    def __call__(self, contract: Contract) -> Executor: ...

    def close(self) -> None:
        """Release what the executors share."""
        ...
