"""What a subject is built from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject

__all__ = ["Setting"]


@dataclass(frozen=True)
class Setting(JsonDataclass):
    """What a subject is built from."""

    parameters: JsonObject
    """The profile's parameters, with the overrides of the command line and of the mutant."""
    device: str
    """"cpu" or "cuda:0"; the process sees no GPU but the leased ones."""
    seed: int
    workspace: Path
    """A folder of this trial alone, removed afterwards."""
    cache: Path
    """A folder kept between runs and shared between trials; it may be wiped at any time. Writers take a lock."""
