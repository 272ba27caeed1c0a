"""The choice of another subject for a run: `command:FILE`, `recorded:FILE`, `hf:MODULE:FUNCTION` or `file:PATH`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from harness.base.strictjson import JsonObject

__all__ = ["External", "Kind"]


class Kind(StrEnum):
    """How a trainer is observed."""

    COMMAND = "command"
    """The harness runs it."""
    RECORDED = "recorded"
    """It has run; the harness reads its directory."""
    HF = "hf"
    """A function of the project returns a `transformers.Trainer`, which trains in the trial's process."""
    FILE = "file"
    """The subject is a file, or a folder of files, and no trainer: the claim is about what it says."""

    @property
    def value_named(self) -> str:
        """What stands after the colon."""
        return {Kind.HF: "MODULE:FUNCTION", Kind.FILE: "PATH"}.get(self, "TRAINER.toml")


_ADAPTERS: Mapping[Kind, str] = {
    Kind.COMMAND: "external:Command",
    Kind.RECORDED: "external:Recorded",
    Kind.HF: "hugging_face:HF",
}
"""The module beside the falsifier and the name in it. The adapter of a file is `File` in the falsifier's own module."""


@dataclass(frozen=True)
class External:
    """An external trainer as the subject of a run."""

    kind: Kind
    trainer: str
    """Its TOML file, or the file that is judged, from the project's root; the entry point of a function that returns a
    Trainer."""
    parameters: JsonObject = field(default_factory=dict)
    """Parameters of the subject's trial alone: `trainer`, its own ones, and for a finished run all that were set."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of its file and of the sources that a TOML file names, by path from the project's root."""
    seconds: float | None = None
    """Time limit of its trial in seconds; None for the profile's limit."""
    admits: tuple[str, ...] = ()
    """Names of your environment variables that its trials also get."""

    @property
    def is_recorded(self) -> bool:
        """Whether its run is finished. Then this machine need not meet the profile's requirements."""
        return self.kind is Kind.RECORDED

    def entry_point(self, falsifier: str) -> str:
        """The entry point of the spec's adapter for such a subject, beside the falsifier."""
        module = falsifier.partition(":")[0]
        if self.kind is Kind.FILE:
            return f"{module}:File"
        return f"{module.rpartition('.')[0]}.{_ADAPTERS[self.kind]}"

    @property
    def spelling(self) -> str:
        """The value of `--subject`."""
        return f"{self.kind}:{self.trainer}"
