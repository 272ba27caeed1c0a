"""The measurements of one trial and how it ran. A judgment depends only on this and the contract."""

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
    """The falsifier reported that the machine prevents the measurement."""
    SUBJECT_FAULT = "subject fault"
    """The subject raised."""
    FALSIFIER_FAULT = "falsifier fault"
    """The falsifier raised, or could not be imported."""
    TIMED_OUT = "timed out"
    """It reached its limit without progress."""
    SLOW = "slow"
    """It reached its limit while it made progress."""
    DIED = "died"
    """The process ended itself: os._exit, SIGSEGV, SIGABRT…"""
    KILLED = "killed"
    """Another process or the kernel ended it with SIGKILL. The kernel does so when memory runs out."""
    REFUTED = "refuted"
    """The harness ended the trial early, such as when a mutant had violated its clauses."""
    INTERRUPTED = "interrupted"
    LOST = "lost"
    """The harness failed around the trial."""
    GARBLED = "garbled"
    """A message of the trial could not be read, so measurements may be missing."""
    CHANGED = "changed"
    """A source file changed while the trial ran, so it is unknown which code ran."""


@dataclass(frozen=True)
class Ending(JsonDataclass):
    """How a trial ended, in which phase, and why."""

    LEFT_OUT: ClassVar = (None,)

    kind: EndingKind
    phase: Phase = Phase.FALSIFIER
    reason: str = ""
    exit_code: int | None = None
    signal: str | None = None
    traceback: str | None = None


@dataclass(frozen=True)
class Residency(JsonDataclass):
    """Whether the process used the GPU, by its own allocator (peak bytes) and by the driver. None: not queried."""

    allocator_peak_bytes: int | None = None
    driver_seen: bool | None = None
    driver_peak_bytes: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Observation(JsonDataclass):
    """One trial's measurements. A non-finite number is a float in memory and tagged in a file."""

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
    """Why a measurement is missing, by its name. Only external subjects have such reasons."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of observation.json. An empty `unseen` is omitted."""
        plain = super().to_json()
        return plain if self.unseen else {name: value for name, value in plain.items() if name != "unseen"}
