"""Subjects that a contract does not name. Distributions add kinds of them by the entry points `harness.subjects`.

    class Command(NamedSubject):                    # command = "harness.tools.trainer.subjects:Command"
        value, adapter = "TRAINER.toml", "external:Command"

The kind is what stands before the colon of `--subject command:TRAINER.toml`. It is also the name of the adapter's
class, in lower case.
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
    """A subject or its parameters are refused. The text has the remedy, and `option` is what is refused."""

    def __init__(self, why: str, option: str = "--subject") -> None:
        super().__init__(why)
        self.option = option


@dataclass(frozen=True)
class Subject:
    """What a claim runs with instead of what its contract names."""

    entry_point: str = ""
    """Empty for the contract's own subject."""
    spelling: str = ""
    """The value of `--subject`."""
    parameters: JsonObject = field(default_factory=dict)
    """Parameters of the subject's trial alone."""
    overrides: JsonObject = field(default_factory=dict)
    """Parameters of the claim. They hold for the mutants too."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of its files, by their names in evidence."""
    seconds: float | None = None
    """Time limit of its trial in seconds; None for the profile's limit."""
    admits: tuple[str, ...] = ()
    """Names of your environment variables that the claim's trials also get."""
    is_over: bool = False
    """Whether its run is finished. Then this machine need not meet the profile's requirements."""
    why_not_isolated: str = ""
    """Why it cannot have a process of its own beside the falsifier's; empty if it can."""

    @classmethod
    def at(cls, entry_point: str, overrides: JsonObject | None = None) -> Subject:
        """Code of the project."""
        return cls(entry_point, entry_point, overrides=overrides or {})


class NamedSubject(ABC):
    """A subject that is named as KIND:VALUE. What a claim sees of it is in the adapter beside the claim's falsifier."""

    value: ClassVar[str]
    """What stands after the colon, for the user."""
    adapter: ClassVar[str]
    """MODULE:CLASS; no module for the falsifier's own. What is in the module `external` works in another process."""
    is_over: ClassVar[bool] = False
    why_not_isolated: ClassVar[str]
    further: ClassVar[tuple[str, ...]] = ()
    """Further parameters without a default. They are the subject's, also if the claim has one of that name."""

    name: str
    """Names it in evidence: with a path from the project's root."""
    parameters: JsonObject
    """Its own parameters, with their defaults."""
    seconds: float | None = None
    admits: tuple[str, ...] = ()

    @abstractmethod
    def __init__(self, value: str, folder: Path, project: Project) -> None:
        """Find it. `folder` is where paths begin. Raises SubjectRefused."""

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, str]:
        """The sha256 of its files, by their names in evidence. Raises SubjectRefused."""

    def checked(self, contract: Contract, own: JsonObject, overrides: JsonObject) -> tuple[JsonObject, JsonObject]:
        """Return its parameters and the claim's, as trials get them. Raises SubjectRefused."""
        return own, overrides

    def own(self, contract: Contract) -> JsonObject:
        """Its parameters for a claim. Those that the claim has, too, are the claim's."""
        names = own_names(contract)
        return {"trainer": self.name, **{name: value for name, value in self.parameters.items() if name not in names}}

    @classmethod
    def kind(cls) -> str:
        """What stands before the colon."""
        return cls.adapter.rpartition(":")[2].lower()

    @classmethod
    def entry_point(cls, falsifier: str) -> str:
        """The adapter's entry point."""
        module, _, name = cls.adapter.partition(":")
        own = falsifier.partition(":")[0]
        beside = f"{own.rpartition('.')[0]}.{module}" if module else own
        return f"{beside}:{name}"

    @classmethod
    def is_taken(cls, falsifier: str, contract: Path, project: Project) -> bool:
        """Whether there is an adapter beside this falsifier of this contract file."""
        try:
            locate(cls.entry_point(falsifier), project.search_of(contract))
        except EntryPointError:
            return False
        return True

    def subject(
        self, contract: Contract, project: Project, own: JsonObject | None = None, overrides: JsonObject | None = None
    ) -> Subject:
        """The subject of a claim.

        Args:
            own: its parameters that differ from `own(contract)`.
            overrides: the claim's that differ.

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
    """The kinds that are installed."""
    return list(plugins(_GROUP))


def kind(name: str) -> type[NamedSubject]:
    """The class of a kind. Raises PluginError if it cannot be imported, or names its adapter otherwise."""
    plugin = plugins(_GROUP)[name]
    subject_kind = cast(type[NamedSubject], plugin.load())
    if subject_kind.kind() != name:
        raise PluginError(
            f"{name} of {plugin.origin} has the adapter {subject_kind.adapter}: its class is {subject_kind.kind()!r}"
        )
    return subject_kind


def named(text: str, project: Project, is_default: bool = False) -> NamedSubject | None:
    """The subject that a text names as KIND:VALUE; None if it begins with no kind.

    Args:
        is_default: whether the project's settings name it. Then paths begin at the project's root.

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
    """The names of a claim's parameters. A subject takes their values from the claim."""
    return list(dict.fromkeys(name for profile in contract.profiles.values() for name in profile.parameters))


def _not_taken(refused: NamedSubject, contract: Contract, project: Project) -> str:
    """What the claim takes instead, and which claims take such a subject."""
    parts = [f"{contract.id} takes no {refused.kind()} as its subject"]
    for name in kinds():
        if (other := kind(name)).is_taken(contract.falsifier, contract.path, project):
            parts.append(f"it takes {name}:{refused.name if other.value == refused.value else other.value}")
    claims, _ = project.load_all(project.known())
    takers = [claim.id for claim in claims if refused.is_taken(claim.falsifier, claim.path, project)]
    parts.append(f"these claims take one: {', '.join(takers)}" if takers else "no claim of this project takes one")
    return "; ".join(parts)
