"""What a run is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.contract import Contract
from harness.external.choice import External

__all__ = ["RunRequest"]


@dataclass(frozen=True)
class RunRequest:
    """Which claims to run, how, and where."""

    contracts: Sequence[Contract] = ()
    profile: str = "auto"
    """"auto", "full" or "reduced"."""
    device: str = "auto"
    """"auto", "cpu" or "cuda:N"."""
    subject: str | None = None
    """The entry point of another subject than the contract's."""
    external: External | None = None
    """A trainer of another project, in the place of `subject`."""
    parameters: JsonObject = field(default_factory=dict)
    """Those that differ from the profile's, by name."""
    mutants: bool = True
    jobs: int | None = None
    """How many trials run side by side; None leaves it to the plan."""
    seed: int = 0
    slurm: Sequence[str] | None = None
    """Options of `srun`, which then runs each claim as a job; None runs the claims on this machine."""
    evidence: Path | None = None
    """Where bundles go; None for the folder of the project."""
    key: Path | None = None
    """The private key that signs the bundles."""

    @property
    def is_reading(self) -> bool:
        """Whether the subject is a run that has ended, of which only files are read."""
        return self.external is not None and self.external.is_recorded

    def arguments(self) -> list[str]:
        """The options of `harness run` that ask for the same work; without those on how many trials run at once."""
        words: list[str] = []
        for name, value in (("--profile", self.profile), ("--device", self.device)):
            words += [] if value == "auto" else [name, value]
        if self.subject is not None:
            words += ["--subject", self.subject]
        changed = dict(self.parameters)
        if self.external is not None:
            words += ["--subject", self.external.spelling]
            changed |= {name: value for name, value in self.external.parameters.items() if name != "trainer"}
        for name, value in changed.items():
            words += ["-P", f"{name}={_typed(value)}"]
        if not self.mutants:
            words.append("--no-mutants")
        return [*words, "--seed", str(self.seed)] if self.seed else words


def _typed(value: Any) -> str:
    """A parameter as one types it: a text without quotes, unless it would be read as something else."""
    if isinstance(value, str):
        try:
            strictjson.loads(value)
        except strictjson.JsonError:
            return value
    return strictjson.dumps(value)
