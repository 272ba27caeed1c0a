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
    """The trial's side of a subject in a process of its own: see `harness.tools.isolate.subject_process`."""

    def __init__(self, start: Start, sources: Sources, ours: Iterable[int]) -> None: ...

    def loaded(self, falsify: Callable[..., Any]) -> Callable[[Setting], Any]: ...

    def lines(self) -> list[tuple[str, str]]: ...

    def end(self) -> int | None: ...


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
