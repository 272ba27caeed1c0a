"""The choice of another trainer as the subject of a run: `command:FILE`, `recorded:FILE` or `hf:MODULE:FUNCTION`."""

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

    @property
    def value_named(self) -> str:
        """What stands after the colon."""
        return "MODULE:FUNCTION" if self is Kind.HF else "TRAINER.toml"


_ADAPTERS: Mapping[Kind, str] = {
    Kind.COMMAND: "external:Command",
    Kind.RECORDED: "external:Recorded",
    Kind.HF: "hugging_face:HF",
}
"""The module beside the falsifier and the name in it."""


@dataclass(frozen=True)
class External:
    """An external trainer as the subject of a run."""

    kind: Kind
    trainer: str
    """Its TOML file, from the project's root; the entry point of a function that returns a Trainer."""
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
        package = falsifier.partition(":")[0].rpartition(".")[0]
        return f"{package}.{_ADAPTERS[self.kind]}"

    @property
    def spelling(self) -> str:
        """The value of `--subject`."""
        return f"{self.kind}:{self.trainer}"
