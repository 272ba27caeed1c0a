"""Subjects in a process of their own. A tool has it: an entry point of the group `harness.isolation`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.authoring.setting import Setting
from harness.base.plugins import PluginError, plugins
from harness.contract import Contract
from harness.contract.project import Project
from harness.execution.messages import Start
from harness.execution.sources import Sources

__all__ = ["IsolatedSubject", "Isolation", "isolation"]

_GROUP = "harness.isolation"


class IsolatedSubject(Protocol):
    """The trial's side of a subject in a process of its own."""

    def __init__(self, start: Start, setting: Setting, sources: Sources, ours: Iterable[int]) -> None:
        """Start the process. It closes the descriptors `ours`, which are the trial's."""

    def loaded(self, falsify: Callable[..., Any]) -> Callable[[Setting], Any]:
        """Import the subject there. Returns a function that builds it there and returns a stand-in for it."""
        ...

    def lines(self) -> list[tuple[str, str]]:
        """Lines for the log since the last call, with topics."""
        ...

    def end(self) -> int | None:
        """End the process. Returns the peak of its GPU allocator in bytes; None if it is unknown."""
        ...


@dataclass(frozen=True)
class Isolation:
    """How subjects are isolated: the object at the entry point."""

    process: str
    """The entry point of an `IsolatedSubject`, which the trial imports."""
    obstacles: Callable[[Project, Sequence[Contract]], dict[str, str]]
    """Why the subjects of each claim cannot be isolated, by its id; empty if they can."""


def isolation() -> Isolation:
    """How subjects are isolated.

    Raises:
        PluginError: no distribution, or more than one, isolates subjects.
    """
    for plugin in plugins(_GROUP).values():
        isolation: Isolation = plugin.load()
        return isolation
    raise PluginError("nothing that is installed isolates subjects; install the harness again")
