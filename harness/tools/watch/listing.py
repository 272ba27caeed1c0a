"""Lists the watched jobs of this user with the saved GPU-hours, and the running jobs of a project."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.base import regular_file
from harness.contract.project import Project
from harness.machine.cache_folder import NoCacheFolderError
from harness.machine.process_tree import started
from harness.report.messages.number_text import counted
from harness.report.running_jobs import RunningJob
from harness.tools.watch.checks import state_of
from harness.tools.watch.facts import FACTS, facts_in, states_folder
from harness.tools.watch.given import given_of
from harness.tools.watch.job_state import JobState
from harness.tools.watch.text import place_line, refuted_line, saved_gpu_seconds

__all__ = ["ListedJob", "listed", "running", "total_line"]

_LAST: Final = 1 << 16
"""Bytes at the end of a facts file that contain the end of an ended job."""


_FORGOTTEN: Final = 7 * 86400.0
"""Seconds after the newest fact until a job without an end is no longer listed."""


@dataclass(frozen=True)
class ListedJob:
    """A job with facts."""

    folder: Path
    job: JobState
    is_watched: bool

    @property
    def runs(self) -> bool:
        """Whether a watcher follows the job, or its process is alive."""
        about = self.job.description
        is_alive = "pid" in about and "started_at" in about and started(about["pid"]) == about["started_at"]
        return not self.job.is_over and (self.is_watched or is_alive)

    @property
    def line(self) -> str:
        """The job in a line."""
        job = self.job
        state = job.how if job.is_over else "runs" if self.runs else "is gone"
        if not job.is_over and not self.is_watched and "trainer" in job.description:
            state += " and has no watcher; harness watch --resume continues"
        saved = saved_gpu_seconds(job) / 3600
        result = f"refuted: {refuted_line(job)}" if job.refutations else "nothing is refuted"
        result += f"; saved {saved:.2f} GPU-hours" if saved else ""
        return f"{self.folder.name}: {job.description.get('name', '?')}  {place_line(job)}  {state}; {result}"


def total_line(jobs: Sequence[ListedJob]) -> str:
    """Return the sum over jobs."""
    running = sum(job.runs for job in jobs)
    refuted = sum(bool(job.job.refutations) for job in jobs)
    ended = sum(job.job.is_over and job.job.was_ended for job in jobs)
    saved = sum(saved_gpu_seconds(job.job) for job in jobs) / 3600
    counts = f"{counted(len(jobs), 'job')}, {running} running, {refuted} refuted"
    return f"{counts}, {ended} ended early: {saved:.2f} GPU-hours saved"


def listed(since: float = 0.0, *, over: bool = True) -> Iterator[ListedJob | str]:
    """Yield the jobs of this user, or why the facts of one cannot be read.

    Args:
        since: the earliest time of the newest fact. over: whether to include ended jobs.

    Raises:
        NoCacheFolderError: there is no folder for them.
    """
    for path in sorted(states_folder().glob(f"*/{FACTS}")):
        try:
            if path.stat().st_mtime < since or (not over and _is_over(path)):
                continue
            if facts := facts_in(path):  # otherwise the job was refused before it started
                job = state_of(facts, given_of(facts[0]["values"]))
                yield ListedJob(path.parent, job, _is_held(path))
        except (OSError, ValueError, LookupError) as error:
            yield f"{path.parent.name}: its facts cannot be read: {error}"


def running(project: Project) -> Iterator[RunningJob]:
    """Yield the jobs of a project that run. The core calls this as an entry point of `harness.jobs`."""
    with suppress(NoCacheFolderError):
        for listed_job in listed(time.time() - _FORGOTTEN, over=False):
            if isinstance(listed_job, str):
                yield RunningJob("harness watch", listed_job)
            elif listed_job.runs and listed_job.job.description.get("root") == str(project.root):
                about = listed_job.job.description
                state = place_line(listed_job.job) + ("" if listed_job.is_watched else ", without a watcher")
                yield RunningJob(str(about["name"]), state, refuted_line(listed_job.job), str(about.get("page", "")))


def _is_over(path: Path) -> bool:
    with regular_file.opened(path) as file:
        file.seek(max(path.stat().st_size - _LAST, 0))
        return b'{"fact":"ended"' in file.read()


def _is_held(path: Path) -> bool:
    with regular_file.opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
