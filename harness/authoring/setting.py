"""The argument of a subject's constructor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject

__all__ = ["Setting"]


@dataclass(frozen=True)
class Setting(JsonDataclass):
    """The argument of a subject's constructor."""

    parameters: JsonObject
    """The profile's parameters, with the overrides of the command line and of the mutant."""
    device: str
    """"cpu" or "cuda:0". The process sees only the leased GPUs."""
    seed: int
    workspace: Path
    """A temporary folder of this trial."""
    cache: Path
    """A folder that persists between runs and that trials share. It may be wiped at any time. Writers take a lock."""
