"""The choice of somebody else's trainer as the subject of a run: `command:TRAINER.toml`, `recorded:TRAINER.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from harness.base.strictjson import JsonObject

__all__ = ["External", "Kind"]


class Kind(StrEnum):
    """How a trainer is looked at."""

    COMMAND = "command"
    """It is run."""
    RECORDED = "recorded"
    """It has run; its directory is read."""


@dataclass(frozen=True)
class External:
    """Somebody else's trainer as a run's subject."""

    kind: Kind
    trainer: str
    """Its TOML file, from the project's root."""
    parameters: JsonObject = field(default_factory=dict)
    """Those of the subject's trial alone: `trainer`, the trainer's own, and of a run that is over all that were set."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of its TOML file, and of the sources that this names, by path from the project's root."""
    seconds: float | None = None
    """How long a trial of it may take, where not as long as the profile says."""
    admits: tuple[str, ...] = ()
    """Variables of the user's that its trials get beyond those that every trial gets."""

    @property
    def is_recorded(self) -> bool:
        """Whether its run has ended, so that this machine need not meet the profile's requirements."""
        return self.kind is Kind.RECORDED

    def entry_point(self, falsifier: str) -> str:
        """The adapter that the spec of a falsifier has for such a subject: `external.py` beside the falsifier."""
        package = falsifier.partition(":")[0].rpartition(".")[0]
        return f"{package}.external:{self.kind.value.capitalize()}"

    @property
    def spelling(self) -> str:
        """What `--subject` takes."""
        return f"{self.kind}:{self.trainer}"
