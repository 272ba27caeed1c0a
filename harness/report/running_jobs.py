"""The jobs of a project that run, as tools tell: functions of the project in the group `harness.jobs`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.base.plugins import plugins
from harness.base.shortening import described
from harness.contract.project import Project

__all__ = ["RunningJob", "running_jobs"]


@dataclass(frozen=True)
class RunningJob:
    """A job, in words."""

    name: str
    state: str
    """How far it is."""
    refuted: str = ""
    """What is refuted so far; empty if nothing is."""
    page: str = ""
    """The file of its own page; empty if it has none."""

    @property
    def told(self) -> str:
        """What is refuted, as a sentence."""
        return f"refuted: {self.refuted}" if self.refuted else "nothing is refuted"


def running_jobs(project: Project) -> Iterator[RunningJob]:
    """Yield the jobs. A tool that cannot tell its own is named, and hides no other."""
    for name, plugin in plugins("harness.jobs").items():
        try:
            yield from plugin.load()(project)
        except Exception as error:
            yield RunningJob(name, f"its jobs cannot be listed: {described(error)}")
