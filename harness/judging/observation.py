"""What one trial measured, and under which circumstances: the only thing besides the contract that a judgment sees."""

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
    """The falsifier said that the machine was in the way."""
    SUBJECT_FAULT = "subject fault"
    """The subject raised."""
    FALSIFIER_FAULT = "falsifier fault"
    """The falsifier raised, or could not be imported."""
    TIMED_OUT = "timed out"
    DIED = "died"
    """The process exited or took a signal of its own making (os._exit, SIGSEGV, SIGABRT…)."""
    KILLED = "killed"
    """Somebody else ended the process: SIGKILL, as the kernel does when memory runs out."""
    INTERRUPTED = "interrupted"
    LOST = "lost"
    """The machinery around the trial failed."""


@dataclass(frozen=True)
class Ending:
    """How a trial ended, in whose code, and why."""

    kind: EndingKind
    phase: Phase = Phase.FALSIFIER
    reason: str = ""
    exit_code: int | None = None
    signal: str | None = None
    traceback: str | None = None


@dataclass(frozen=True)
class Residency:
    """Whether the process was on the GPU: by its own allocator (bytes at the peak), and by the driver."""

    allocator_peak_bytes: int | None = None
    driver_seen: bool | None = None
    driver_peak_bytes: int | None = None
    reason: str | None = None


class ObservationError(ValueError):
    """A file is not an observation; the message names the place."""


@dataclass(frozen=True)
class Observation:
    """One trial's measurements. Floats that are not finite stay floats in memory and are tagged in a file."""

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
    """Of what the subject did not let the falsifier see: why, by measurement."""

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
            ObservationError: the document is not of the observation schema.
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
        """Read observation.json; ObservationError where it is not one."""
        try:
            return cls.from_json(strictjson.load(path))
        except strictjson.JsonError as error:
            raise ObservationError(str(error)) from error
