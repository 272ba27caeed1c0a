"""A loaded contract: one claim, its measurements and bounds, its profiles and its mutants."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.device import Target
from harness.base.schemas import Problem
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome
from harness.contract.clauses import SchemaClause, is_finite, judge_schema
from harness.contract.contract_annotations import Refutation
from harness.contract.patch import Patch
from harness.contract.rules import Rule

if TYPE_CHECKING:
    from harness.machine.requirements import Requirements  # it imports shutil and its archive formats

__all__ = [
    "COMPLETES", "CONTRADICTION", "DEVICE_FIELDS", "RESOLVED", "UNLIKE_FILES", "Contract", "ContractError", "Mutant",
    "Parameters", "Profile", "builtin_clauses",
]  # fmt: skip

DEVICE_FIELDS = ("type", "name", "compute_capability", "memory_bytes", "memory_source", "unified", "uuid")
"""Fields of the device that rules may read."""


COMPLETES = "subject.completes"
"""The built-in clause on how the trial ended.

NOT_MEASURED if something other than the subject ended the trial early. For an external trainer, also NOT_MEASURED if
its output lacks a needed value, because then it is unknown whether the trainer itself failed."""

CONTRADICTION = "reported.contradiction"
"""The built-in clause that the statements of an external trainer do not contradict each other."""

UNLIKE_FILES = "reported.files"
"""The built-in clause that the statements of an external trainer do not contradict its output files.

Runs whose output or files cannot be compared have no such clause."""

RESOLVED = ("dtype", "backend", "steps")
"""Parameters that must equal the values read back. The device is always compared."""


def builtin_clauses(parameters: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of the built-in clauses for a contract whose profiles set these parameters."""
    names = set(parameters)
    resolved = [f"resolved.{name}" for name in RESOLVED if name in names]
    return (COMPLETES, "resolved.device", *resolved, "residency.allocator", "residency.driver")


class ContractError(ValueError):
    """A contract is refused. The message names the file and, for each problem, the JSON pointer and the remedy."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        super().__init__(
            f"{path}: {len(problems)} problem{'s' if len(problems) > 1 else ''}\n"
            + "\n".join(f"  {problem}" for problem in problems)
        )
        self.path = path
        self.problems = problems


@dataclass(frozen=True)
class Profile:
    """The size of the work, and its requirements."""

    name: str
    requires: Requirements
    parameters: JsonObject
    seconds: float
    """Wall-clock limit of one trial."""
    lease_seconds: float
    """Maximum time that a trial waits for the device."""
    omits: frozenset[str] = frozenset()
    """Optional measurements. A clause on one that was not taken is not judged."""
    step: str | None = None
    """The entry point of a training step whose memory is predicted before a trial gets a GPU."""
    exclusive: bool = False
    """Whether a trial needs the device exclusively, as for timing."""
    limit_is_claimed: bool = False
    """Whether the time limit is part of the claim, so that a slow subject is refuted."""


@dataclass(frozen=True)
class Mutant:
    """A subject with one known defect, and the clauses that it must violate."""

    id: str
    subject: str
    violates: tuple[str, ...]
    defect: str
    requires: Requirements
    parameters: JsonObject
    memory_gib: float = math.inf
    """Memory of its trial, if less than the profile requires."""
    shares: bool = False
    """Whether its trial shares the device although the profile is exclusive."""
    patches: tuple[Patch, ...] = ()
    """Changes to the subject's source that introduce the defect."""
    of_any_subject: bool = False
    """Whether the parameters alone introduce the defect, so that any subject of a run can have it."""

    def of(self, subject: str, own: JsonObject) -> Mutant:
        """Return the mutant in a run of this subject with its own parameters."""
        return replace(self, subject=subject, parameters={**own, **self.parameters}) if self.of_any_subject else self


@dataclass(frozen=True)
class Contract:
    """A loaded contract."""

    path: Path
    digest: str
    """sha256 of the file's bytes, without the annotations (`harness.contract.contract_annotations`)."""
    content: bytes
    """The file's bytes, which a bundle stores."""
    document: JsonObject
    id: str
    issue: str
    spec: str
    title: str
    claim: str
    falsifier: str
    subject: str
    target: Target
    parameters: Parameters | None
    """The declared parameters; None if the contract declares none."""
    profiles: Mapping[str, Profile]
    observation: JsonObject
    """The observation schema with its references resolved."""
    clauses: tuple[SchemaClause, ...]
    rules: tuple[Rule, ...]
    mutants: tuple[Mutant, ...]
    outside_omits: frozenset[str] = frozenset()
    """Measurements that no external subject can expose."""
    stands_in_for: str = ""
    """What the source requires, and what the falsifier does instead; empty if the falsifier does what is required."""
    refuted: tuple[Refutation, ...] = ()
    """Known refutations."""
    calibration: Mapping[str, JsonObject] = field(default_factory=dict)
    """The profiles of the calibration beside the file; empty if there is none, and for a bundle's copy."""
    notes: str = ""
    """The text of notes.md beside the file; empty for a bundle's copy."""

    @property
    def exclusive(self) -> bool:
        """Whether a trial of any profile needs the device exclusively."""
        return any(profile.exclusive for profile in self.profiles.values())

    def ratios(self, mutant: str) -> Mapping[str, Mapping[str, float]]:
        """Return a mutant's smallest ratio to each threshold (see `harness.contract.ratio`), by profile and clause."""
        return {name: run["mutants"][mutant] for name, run in self.calibration.items() if mutant in run["mutants"]}

    @property
    def measurements(self) -> frozenset[str]:
        """The names of the declared measurements."""
        return frozenset(self.observation["properties"])

    def is_outside(self, subject: str) -> bool:
        """Whether a subject is this contract's adapter for external subjects."""
        package = self.falsifier.partition(":")[0].rpartition(".")[0]
        return subject.partition(":")[0] == f"{package}.external" and subject != self.document["subject"]

    def unjudged(self, profile: str, measured: Collection[str] = (), hidden: Collection[str] = ()) -> tuple[str, ...]:
        """Return the ids of clauses on omitted measurements that are not in `measured`; rules first.

        Args:
            hidden: measurements that an external subject does not expose. Those in `outside_omits` count as omitted.
        """
        omits = self.profiles[profile].omits if profile in self.profiles else frozenset()
        omitted = (omits | self.outside_omits.intersection(hidden)).difference(measured)
        clauses = [clause.id for clause in self.clauses if not omitted.isdisjoint(clause.path[:1])]
        rules = [rule.id for rule in self.rules if not omitted.isdisjoint(rule.measurements)]
        return (*rules, *clauses)

    @property
    def entry_points(self) -> tuple[str, ...]:
        """The entry points that the contract names, each once."""
        return tuple(dict.fromkeys([self.falsifier, self.subject, *(mutant.subject for mutant in self.mutants)]))

    @property
    def builtin_clauses(self) -> tuple[str, ...]:
        """The ids of the built-in clauses."""
        return builtin_clauses(name for profile in self.profiles.values() for name in profile.parameters)

    @property
    def clause_ids(self) -> frozenset[str]:
        """The ids of the contract's own clauses and of the built-in ones."""
        own = (*(clause.id for clause in self.clauses), *(rule.id for rule in self.rules))
        return frozenset((*own, *self.builtin_clauses))


@dataclass(frozen=True)
class Parameters:
    """The declared parameters of a contract."""

    schema: JsonObject
    """The schema with its references resolved."""
    clauses: tuple[SchemaClause, ...]
    optional: frozenset[str]
    """Parameters that are null in some profile. For these, null is allowed and means no choice."""

    @property
    def names(self) -> tuple[str, ...]:
        """The declared parameters, in the contract's order."""
        return tuple(self.schema["properties"])

    def bounds(self, name: str) -> tuple[SchemaClause, ...]:
        """Return the clauses on one parameter."""
        return tuple(clause for clause in self.clauses if clause.path[0] == name)

    def violations(self, values: JsonObject) -> Iterator[SchemaClause]:
        """Yield the clauses that these values violate. A missing parameter violates none."""
        chosen = {name: value for name, value in values.items() if value is not None or name not in self.optional}
        finite = {name: is_finite(value) for name, value in chosen.items()}
        for clause, result in zip(self.clauses, judge_schema(self.clauses, chosen, finite), strict=True):
            if result.outcome is Outcome.FAIL:
                yield clause
