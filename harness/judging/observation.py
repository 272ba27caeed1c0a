"""What one trial measured, and how it ran. A judgment depends on this and on the contract alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.base import schemas, strictjson
from harness.base.device import Device
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Phase

__all__ = ["Ending", "EndingKind", "Observation", "ObservationError", "Residency"]


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
    DIED = "died"
    """The process ended itself: os._exit, SIGSEGV, SIGABRT…"""
    KILLED = "killed"
    """Another process or the kernel ended it with SIGKILL. The kernel does so when memory runs out."""
    INTERRUPTED = "interrupted"
    LOST = "lost"
    """The harness failed around the trial."""
    GARBLED = "garbled"
    """A message of the trial could not be read, so what it measured is not known."""


@dataclass(frozen=True)
class Ending:
    """How a trial ended, which code ran then, and why."""

    kind: EndingKind
    phase: Phase = Phase.FALSIFIER
    reason: str = ""
    exit_code: int | None = None
    signal: str | None = None
    traceback: str | None = None


@dataclass(frozen=True)
class Residency:
    """Whether the process used the GPU, by its own allocator (peak bytes) and by the driver. None: not asked."""

    allocator_peak_bytes: int | None = None
    driver_seen: bool | None = None
    driver_peak_bytes: int | None = None
    reason: str | None = None


class ObservationError(ValueError):
    """A document is not an observation. The message names the place."""


@dataclass(frozen=True)
class Observation:
    """One trial's measurements. A float that is not finite is a float in memory and tagged in a file."""

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
        """The form that observation.json holds."""
        ending = {key: value for key, value in vars(self.ending).items() if value is not None}
        plain = {**vars(self), "device": self.device.to_json(), "residency": vars(self.residency), "ending": ending}
        if not self.unseen:
            del plain["unseen"]
        tagged: dict[str, Any] = strictjson.tag_nonfinite(plain)
        return tagged

    @classmethod
    def from_json(cls, document: Any) -> Observation:
        """The inverse of `to_json`.

        Raises:
            ObservationError: the document violates the observation schema.
        """
        found = schemas.problems("observation", document)
        if found:
            raise ObservationError("; ".join(map(str, found[:5])))
        plain = strictjson.untag_nonfinite(document)
        ending = plain.pop("ending")
        return cls(
            **{**plain, "device": Device.from_json(plain["device"]), "residency": Residency(**plain["residency"])},
            ending=Ending(**{**ending, "kind": EndingKind(ending["kind"]), "phase": Phase(ending["phase"])}),
        )

    @classmethod
    def load(cls, path: Path) -> Observation:
        """Read observation.json. Raises ObservationError if it is not one."""
        try:
            return cls.from_json(strictjson.load(path))
        except strictjson.JsonError as error:
            raise ObservationError(str(error)) from error
