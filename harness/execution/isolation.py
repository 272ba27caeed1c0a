"""Isolated subjects, which run in a process apart from the falsifier. Entry-point group: `harness.isolation`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from harness.authoring.setting import Setting
from harness.base.plugins import PluginError, plugins

if TYPE_CHECKING:  # the fork server needs none of these
    from harness.contract import Contract
    from harness.contract.project import Project
    from harness.execution.messages import Start
    from harness.execution.sources import Sources

__all__ = ["IsolatedSubject", "Isolation", "isolation"]

_GROUP = "harness.isolation"


class IsolatedSubject(Protocol):
    """The trial's end of an isolated subject; see `harness.tools.isolate.subject_process`."""

    def __init__(self, start: Start, sources: Sources, ours: Iterable[int]) -> None: ...

    def loaded(self, falsify: Callable[..., Any]) -> Callable[[Setting], Any]: ...

    def lines(self) -> list[tuple[str, str]]: ...

    def end(self) -> int | None: ...


@dataclass(frozen=True)
class Isolation:
    """An implementation of isolation: the object at the entry point."""

    process: str
    """The entry point of an `IsolatedSubject`, which the trial imports."""
    obstacles: Callable[[Project, Sequence[Contract]], dict[str, str]]
    """Returns why subjects cannot be isolated, by the claim's id; empty if all can."""


def isolation() -> Isolation:
    """Load the implementation.

    Raises:
        PluginError: no distribution provides one, or several do.
    """
    for plugin in plugins(_GROUP).values():
        isolation: Isolation = plugin.load()
        return isolation
    raise PluginError("nothing that is installed isolates subjects; install the harness again")
