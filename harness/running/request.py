"""The request of a run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import SearchEnd
from harness.contract import Contract
from harness.contract.other_subject import Subject

__all__ = ["DEVICES", "PROFILES", "RunRequest"]

PROFILES = ("auto", "full", "reduced")
DEVICES = re.compile("auto|cpu|cuda(:[0-9]{1,4})?")


@dataclass(frozen=True)
class RunRequest:
    """How and where to run claims."""

    contracts: Sequence[Contract] = ()
    profile: str = "auto"
    """One of PROFILES."""
    device: str = "auto"
    """One of DEVICES: "auto", "cpu", "cuda" for any GPU, or "cuda:N"."""
    subject: Subject | None = None
    """A subject for all claims instead of the contracts' own."""
    subjects: Mapping[str, Subject] = field(default_factory=dict)
    """Subjects of single claims, by id."""
    parameters: JsonObject = field(default_factory=dict)
    """Overrides of parameters, by name."""
    mutants: bool = True
    all_mutants: bool = False
    """Whether mutants also run if the subject did not pass."""
    search_end: SearchEnd = SearchEnd.SIMPLEST
    """When the search of a refuted subject ends."""
    jobs: int | None = None
    """Number of parallel trials; None: the plan decides."""
    seed: int = 0
    isolate: bool = False
    """Whether each subject runs in a process apart from its falsifier."""
    executor: str = "local"
    """The executor: this machine, or one of the group `harness.executors`."""
    executor_options: Sequence[str] = ()
    """Options of the executor, such as those of `srun`."""
    evidence: Path | None = None
    """The folder for bundles; None for the project's."""
    key: Path | None = None
    """The private key that signs the bundles."""
    fail_fast: bool = False
    """Whether the run ends after the first claim that is refuted or VOID."""
    command: str = ""
    """The command line that the records state; empty for that of `harness run`."""

    def __post_init__(self) -> None:
        """Validate the values like the options of `harness run`.

        Raises:
            ValueError: a value is invalid. The text names the valid ones.
        """
        if self.profile not in PROFILES:
            raise ValueError(f"profile is {', '.join(PROFILES[:-1])} or {PROFILES[-1]}, not {self.profile!r}")
        if not DEVICES.fullmatch(self.device):
            raise ValueError(f"device is auto, cpu, cuda or cuda:N, not {self.device!r}")
        if self.seed < 0 or (self.jobs is not None and self.jobs < 1):
            raise ValueError(f"seed is 0 or more and jobs 1 or more, not {self.seed} and {self.jobs}")

    def of(self, contract: Contract) -> RunRequest:
        """Return the request of one claim, with its own subject and overrides."""
        if (subject := self.subjects.get(contract.id)) is None:
            return self
        changed = {**self.parameters, **subject.overrides}
        own = replace(self, subjects={}, subject=subject if subject.entry_point else None, parameters=changed)
        return replace(own, command=shlex.join(["harness", "run", *own.arguments(), contract.id]))

    @property
    def is_reading(self) -> bool:
        """Whether the subject is a finished run."""
        return self.subject is not None and self.subject.is_over

    def arguments(self) -> list[str]:
        """Return the options of `harness run` for the same work, without the number of parallel trials."""
        words: list[str] = []
        for name, value in (("--profile", self.profile), ("--device", self.device)):
            words += [] if value == "auto" else [name, value]
        changed = dict(self.parameters)
        if self.subject is not None:
            words += ["--subject", self.subject.spelling]
            changed |= {name: value for name, value in self.subject.parameters.items() if name != "trainer"}
        for name, value in changed.items():
            words += ["-P", f"{name}={_typed(value)}"]
        if not self.mutants:
            words.append("--no-mutants")
        if self.all_mutants:
            words.append("--all-mutants")
        if self.isolate:
            words.append("--isolate")
        return [*words, "--seed", str(self.seed)] if self.seed else words


def _typed(value: Any) -> str:
    """Format a parameter for the command line. A string is quoted only if it would be parsed as another type."""
    if isinstance(value, str):
        try:
            strictjson.loads(value)
        except strictjson.JsonError:
            return value
    return strictjson.dumps(value)
