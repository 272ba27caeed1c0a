"""Subjects other than a contract's own. The entry-point group `harness.subjects` adds kinds of them.

    class Command(NamedSubject):                    # command = "harness.tools.trainer.subjects:Command"
        value, adapter = "TRAINER.toml", "external:Command"

The kind is the part before the colon in `--subject command:TRAINER.toml`, and the adapter's class name in lower case.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, cast

from harness.base.plugins import PluginError, plugins
from harness.base.strictjson import JsonObject
from harness.contract.entry_point import EntryPointError, locate
from harness.contract.model import Contract
from harness.contract.project import Project

__all__ = ["NamedSubject", "Subject", "SubjectRefused", "kind", "kinds", "named", "own_names"]

_GROUP = "harness.subjects"


class SubjectRefused(ValueError):
    """A subject or its parameters are refused. The text states the remedy; `option` is the refused option."""

    def __init__(self, why: str, option: str = "--subject") -> None:
        super().__init__(why)
        self.option = option


@dataclass(frozen=True)
class Subject:
    """The subject of a run."""

    entry_point: str = ""
    """Empty for the contract's own subject."""
    spelling: str = ""
    """The value of `--subject`."""
    parameters: JsonObject = field(default_factory=dict)
    """Parameters of the subject's trial alone."""
    overrides: JsonObject = field(default_factory=dict)
    """Overrides of the claim's parameters, also for the mutants."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of its files, by their names in evidence."""
    seconds: float | None = None
    """Time limit of its trial in seconds; None for the profile's limit."""
    admits: tuple[str, ...] = ()
    """Additional environment variables that are passed to the claim's trials."""
    is_over: bool = False
    """Whether it is a finished run. Then this machine need not meet the profile's requirements."""
    why_not_isolated: str = ""
    """Why it cannot run in a process apart from the falsifier's; empty if it can."""

    @classmethod
    def at(cls, entry_point: str, overrides: JsonObject | None = None) -> Subject:
        """Return a subject in the project's own code."""
        return cls(entry_point, entry_point, overrides=overrides or {})


class NamedSubject(ABC):
    """A subject given as KIND:VALUE. An adapter beside the claim's falsifier makes it usable for the claim."""

    value: ClassVar[str]
    """A placeholder for VALUE, for help texts."""
    adapter: ClassVar[str]
    """MODULE:CLASS; without MODULE, in the falsifier's module. Classes of a module `external` are external subjects."""
    is_over: ClassVar[bool] = False
    why_not_isolated: ClassVar[str]
    further: ClassVar[tuple[str, ...]] = ()
    """Further parameters without a default. They belong to the subject even if the claim has one of the same name."""

    name: str
    """Its name in evidence, with a path relative to the project's root."""
    parameters: JsonObject
    """Its own parameters, with their defaults."""
    seconds: float | None = None
    admits: tuple[str, ...] = ()

    @abstractmethod
    def __init__(self, value: str, folder: Path, project: Project) -> None:
        """Parse VALUE. Paths are relative to `folder`. Raises SubjectRefused."""

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, str]:
        """SHA-256 of its files, by their names in evidence. Raises SubjectRefused."""

    def checked(self, contract: Contract, own: JsonObject, overrides: JsonObject) -> tuple[JsonObject, JsonObject]:
        """Validate its parameters and the claim's, and return both as trials get them. Raises SubjectRefused."""
        return own, overrides

    def own(self, contract: Contract) -> JsonObject:
        """Return its parameters for a claim. A parameter that the claim has too belongs to the claim."""
        names = own_names(contract)
        return {"trainer": self.name, **{name: value for name, value in self.parameters.items() if name not in names}}

    @classmethod
    def kind(cls) -> str:
        """Return KIND."""
        return cls.adapter.rpartition(":")[2].lower()

    @classmethod
    def entry_point(cls, falsifier: str) -> str:
        """Return the adapter's entry point for a falsifier."""
        module, _, name = cls.adapter.partition(":")
        own = falsifier.partition(":")[0]
        beside = f"{own.rpartition('.')[0]}.{module}" if module else own
        return f"{beside}:{name}"

    @classmethod
    def is_taken(cls, falsifier: str, contract: Path, project: Project) -> bool:
        """Whether the falsifier of this contract file has an adapter for this kind."""
        try:
            locate(cls.entry_point(falsifier), project.search_of(contract))
        except EntryPointError:
            return False
        return True

    def subject(
        self, contract: Contract, project: Project, own: JsonObject | None = None, overrides: JsonObject | None = None
    ) -> Subject:
        """Return the subject of a claim.

        Args:
            own: overrides of its own parameters.
            overrides: overrides of the claim's parameters.

        Raises:
            SubjectRefused: a parameter is wrong, or the claim takes no such subject.
        """
        if not self.is_taken(contract.falsifier, contract.path, project):
            raise SubjectRefused(_not_taken(self, contract, project))
        parameters, changed = self.checked(contract, {**self.own(contract), **(own or {})}, overrides or {})
        return Subject(
            self.entry_point(contract.falsifier),
            f"{self.kind()}:{self.name}",
            parameters,
            changed,
            self.sources,
            self.seconds,
            self.admits,
            self.is_over,
            self.why_not_isolated,
        )


def kinds() -> list[str]:
    """Return the installed kinds."""
    return list(plugins(_GROUP))


def kind(name: str) -> type[NamedSubject]:
    """Return the class of a kind. Raises PluginError if it cannot be imported or has another adapter."""
    plugin = plugins(_GROUP)[name]
    subject_kind = cast(type[NamedSubject], plugin.load())
    if subject_kind.kind() != name:
        raise PluginError(
            f"{name} of {plugin.origin} has the adapter {subject_kind.adapter}: its class is {subject_kind.kind()!r}"
        )
    return subject_kind


def named(text: str, project: Project, is_default: bool = False) -> NamedSubject | None:
    """Parse KIND:VALUE. Returns None if the text does not begin with a kind.

    Args:
        is_default: whether the project's settings name it. Then paths are relative to the project's root.

    Raises:
        SubjectRefused, PluginError
    """
    prefix, _, value = text.partition(":")
    if not text or prefix not in kinds():
        return None
    chosen = kind(prefix)
    if is_default and chosen.is_over:
        raise SubjectRefused(f"{text} is one run, and no subject of all runs; name what ran it")
    return chosen(value, project.root if is_default else Path.cwd(), project)


def own_names(contract: Contract) -> list[str]:
    """Return the names of a claim's parameters. A subject takes their values from the claim."""
    return list(dict.fromkeys(name for profile in contract.profiles.values() for name in profile.parameters))


def _not_taken(refused: NamedSubject, contract: Contract, project: Project) -> str:
    """Describe which kinds of subject the claim takes, and which claims take the refused kind."""
    parts = [f"{contract.id} takes no {refused.kind()} as its subject"]
    for name in kinds():
        if (other := kind(name)).is_taken(contract.falsifier, contract.path, project):
            parts.append(f"it takes {name}:{refused.name if other.value == refused.value else other.value}")
    claims, _ = project.load_all(project.known())
    takers = [claim.id for claim in claims if refused.is_taken(claim.falsifier, claim.path, project)]
    parts.append(f"these claims take one: {', '.join(takers)}" if takers else "no claim of this project takes one")
    return "; ".join(parts)
