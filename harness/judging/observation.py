"""What one trial measured, and how it ran. A judgment depends on this and on the contract alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from harness.base.device import Device
from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Phase

__all__ = ["Ending", "EndingKind", "Observation", "Residency"]


class EndingKind(StrEnum):
    """How a trial ended."""

    COMPLETED = "completed"
    NOT_MEASURED = "not measured"
    """The falsifier reported that the machine prevented the measurement."""
    SUBJECT_FAULT = "subject fault"
    """The subject raised."""
    FALSIFIER_FAULT = "falsifier fault"
    """The falsifier raised, or could not be imported."""
    TIMED_OUT = "timed out"
    """It reached its limit, and stood still."""
    SLOW = "slow"
    """It reached its limit, and still made progress."""
    DIED = "died"
    """The process ended itself: os._exit, SIGSEGV, SIGABRT…"""
    KILLED = "killed"
    """Another process or the kernel ended it with SIGKILL. The kernel does so when memory runs out."""
    REFUTED = "refuted"
    """The harness ended the trial early: what it was to find had been measured, such as a mutant's clauses."""
    INTERRUPTED = "interrupted"
    LOST = "lost"
    """The harness failed around the trial."""
    GARBLED = "garbled"
    """A message of the trial could not be read, so what it measured is not known."""
    CHANGED = "changed"
    """A source file changed while the trial ran, so what it ran is not known."""


@dataclass(frozen=True)
class Ending(JsonDataclass):
    """How a trial ended, which code ran then, and why."""

    LEFT_OUT: ClassVar = (None,)

    kind: EndingKind
    phase: Phase = Phase.FALSIFIER
    reason: str = ""
    exit_code: int | None = None
    signal: str | None = None
    traceback: str | None = None


@dataclass(frozen=True)
class Residency(JsonDataclass):
    """Whether the process used the GPU, by its own allocator (peak bytes) and by the driver. None: not asked."""

    allocator_peak_bytes: int | None = None
    driver_seen: bool | None = None
    driver_peak_bytes: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Observation(JsonDataclass):
    """One trial's measurements. A float that is not finite is a float in memory and tagged in a file."""

    SCHEMA: ClassVar = "observation"

    subject: str
    profile: str
    parameters: JsonObject
    device: Device
    measurements: JsonObject
    resolved: JsonObject = field(default_factory=dict)
    residency: Residency = Residency()
    ending: Ending = Ending(EndingKind.COMPLETED)
    seed: int = 0
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Why a measurement could not be taken, by its name. Only a subject that is observed from outside has such."""

    def to_json(self) -> dict[str, Any]:
        """The form that observation.json holds. An empty `unseen` is left out."""
        plain = super().to_json()
        return plain if self.unseen else {name: value for name, value in plain.items() if name != "unseen"}
