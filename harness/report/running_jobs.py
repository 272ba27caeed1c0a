"""The running jobs of a project, from functions of tools in the entry-point group `harness.jobs`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.base.plugins import plugins
from harness.base.shortening import described
from harness.contract.project import Project

__all__ = ["RunningJob", "running_jobs"]


@dataclass(frozen=True)
class RunningJob:
    """The texts of a job."""

    name: str
    state: str
    """Its progress."""
    refuted: str = ""
    """The refuted claims so far; empty for none."""
    page: str = ""
    """The file of its own page; empty if it has none."""

    @property
    def refutations_text(self) -> str:
        """Return a sentence on the refuted claims."""
        return f"refuted: {self.refuted}" if self.refuted else "nothing is refuted"


def running_jobs(project: Project) -> Iterator[RunningJob]:
    """Yield the jobs. For a tool that fails, a job with its error is yielded."""
    for name, plugin in plugins("harness.jobs").items():
        try:
            yield from plugin.load()(project)
        except Exception as error:
            yield RunningJob(name, f"its jobs cannot be listed: {described(error)}")
