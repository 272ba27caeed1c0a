"""The loop of a watcher: read new facts, apply the checks, judge, seal and act, until the job ends.

    watcher = Watcher(facts, readers, judge, orders)
    job = watcher.run()

A watcher that fails reports the error, and no longer ends the job. Expensive polls and samples become rarer, so that
each uses about a hundredth of one processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, final

from harness.base.json_dataclass import JsonDataclass
from harness.base.shortening import described
from harness.tools.watch.action import Action, call_hook, end_job, slurm_state
from harness.tools.watch.checkpoint_reading import CheckpointReader
from harness.tools.watch.checks import CHECKS
from harness.tools.watch.driver_reading import DriverFollower
from harness.tools.watch.facts import Fact, FactFile
from harness.tools.watch.given import Given
from harness.tools.watch.job_state import Check, JobState, Refutation
from harness.tools.watch.log_reading import LogFollower
from harness.tools.watch.machine_reading import MachineReader
from harness.tools.watch.process import JobProcess, give_room_back, keep_room
from harness.tools.watch.sealing import Judge

__all__ = ["Orders", "Readers", "Watcher"]

_SHARE: Final = 0.01
"""The share of one processor that polls and samples may cost. Checkpoints are read once each, by a thread."""
_RARER: Final = 5.0
"""The maximum factor on the interval between polls. A job that would need more prints hundreds of steps a second."""
_NAP: Final = 0.25
_SLURM_EVERY: Final = 30.0
_PAGE_EVERY: Final = 5.0
_MOST_FAILURES: Final = 5
"""Consecutive failures after which the watcher gives up an ended job."""
_LATEST: Final = 16
"""The maximum factor on the time to the next poll after failures."""
_LAST_READING: Final = 600.0
"""Maximum seconds for reading the remaining checkpoints after the job ends."""


@dataclass(frozen=True)
class Orders(JsonDataclass):
    """The options of a watch."""

    action: Action = Action.LOG
    hook: tuple[str, ...] = ()
    grace: float = 60.0
    slurm: str = ""
    interval: float = 2.0
    """Seconds between two polls."""
    sample_every: float = 5.0
    """Seconds between two samples of the machine."""
    silence: float = 3600.0
    """Seconds without new facts after which a job without a process on this machine counts as ended."""
    without: tuple[str, ...] = ()
    """Excluded checks."""


@dataclass(frozen=True)
class Readers:
    """The sources of facts; None for one that the job does not have."""

    log: LogFollower
    checkpoints: CheckpointReader | None
    machine: MachineReader
    process: JobProcess | None
    driver: DriverFollower | None


@final
@dataclass
class Watcher:
    """Watches one job."""

    facts: FactFile
    epoch: float
    """The time of the job's second 0."""
    given: Given
    readers: Readers
    judge: Judge
    orders: Orders
    say: Callable[[str], None]
    """Called with each line for the user."""
    write_page: Callable[[JobState], None] | None = None
    _sample_at: float = field(default=-1e9, init=False)
    _slurm_read_at: float = field(default=-1e9, init=False)
    _drawn: float = field(default=-1e9, init=False)
    _changed: float = field(default=0.0, init=False)
    _failures: int = field(default=0, init=False)
    _problem: str = field(default="", init=False)
    """The problem of the output's disk; empty without one."""
    _cost: float = field(default=0.0, init=False)
    """CPU seconds of the last read."""

    def __post_init__(self) -> None:
        """Apply the facts of an earlier watcher of this job."""
        checks: list[type[Check]] = [check for check in CHECKS if check.name not in self.orders.without]
        self.job = JobState(self.given, checks)
        for fact in self.facts.earlier:
            self.job.apply(fact)
        self._began = max(time.time() - self.epoch, self.job.at) - time.monotonic()
        self._changed = self.now

    @property
    def now(self) -> float:
        """The second of the job. The machine's clock may be set while it runs."""
        return round(self._began + time.monotonic(), 3)

    def add(self, fact: Fact) -> None:
        """Write a fact, and apply the checks."""
        self.job.apply(self.facts.append(fact))
        if self.job.failed and not self.job.broken:
            raise RuntimeError(self.job.failed)

    def run(self) -> JobState:
        """Watch until the job has ended."""
        is_done = False
        while not is_done:
            try:
                self.poll()
                self._failures, is_done = 0, self.job.is_over
            except Exception as error:
                is_done = self._broke(error)
            if not is_done:
                self._wait()
        if self.readers.checkpoints is not None:
            self.readers.checkpoints.close()
        return self.job

    def _wait(self) -> None:
        """Sleep until the next poll, or until the job has ended."""
        interval = min(max(self.orders.interval, self._cost / _SHARE), _RARER * self.orders.interval)
        until = time.monotonic() + interval * min(2**self._failures, _LATEST)
        process = self.readers.process
        while (remaining := until - time.monotonic()) > 0:
            time.sleep(min(remaining, _NAP))
            if process is not None and not process.is_alive and not self._failures:
                return

    def poll(self) -> None:
        """Poll once. An ended job may still have a refutation that an earlier watcher did not seal."""
        if not self.job.is_over:
            self._read()
        self._conclude()
        if self.write_page is not None and (self.job.is_over or self.now - self._drawn > _PAGE_EVERY):
            self._drawn = self.now
            self.write_page(self.job)

    def _read(self) -> None:
        """Read new facts, and whether the job has ended."""
        self._keep_room()
        over = self._over()
        before = time.thread_time()
        for fact in self._news(is_over=over is not None):
            self.add(fact)
            self._changed = self.now
        self._cost = time.thread_time() - before
        if over is not None:
            self._read_rest()
        self._sample(now=over is not None)  # after the last checkpoint, whose size is compared with the free space
        if over is not None:
            self.add(self._ended(over))
            if self.readers.process is not None and self.readers.process.output is not None:
                give_room_back(self.readers.process.output)

    def _keep_room(self) -> None:
        output = self.readers.process.output if self.readers.process is not None else None
        problem = keep_room(output, self.job.places.get(str(output), (0, 0))[0]) if output is not None else ""
        if problem and problem != self._problem:
            self.say(f"harness watch: {problem}")
        self._problem = problem

    def _ended(self, how: str) -> Fact:
        status = self.readers.process.status if self.readers.process is not None else None
        return {"fact": "ended", "at": self.now, "status": status,
                "how": how if status is None else f"{how} with status {status}"}  # fmt: skip

    def _news(self, *, is_over: bool) -> Iterator[Fact]:
        readers, now = self.readers, self.now
        yield from readers.log.read(self.job, now, is_over=is_over)
        if readers.checkpoints is not None:
            yield from readers.checkpoints.read(self.job, now, is_over=is_over)
        if readers.driver is not None:
            yield from readers.driver.read(self.job, now)

    def _sample(self, *, now: bool) -> None:
        """Sample the machine if a sample is due or forced."""
        if self.now < self._sample_at and not now:
            return
        before, at = time.thread_time(), self.now
        self.add(self.readers.machine.sample(at))
        self._sample_at = at + max(self.orders.sample_every, (time.thread_time() - before) / _SHARE)

    def _read_rest(self) -> None:
        """Read the remaining checkpoints before the end of the job becomes a fact."""
        reader, until = self.readers.checkpoints, time.monotonic() + _LAST_READING
        while reader is not None and reader.is_busy and time.monotonic() < until:
            time.sleep(0.05)
            for fact in reader.read(self.job, self.now, is_over=True):
                self.add(fact)

    def _over(self) -> str | None:
        """Return the end of the job; None while it runs."""
        process, job, now = self.readers.process, self.job, self.now
        if process is not None:
            return None if process.is_alive else "ended"
        if self.orders.slurm:
            if now - self._slurm_read_at < _SLURM_EVERY:
                return None
            self._slurm_read_at = now
            state = slurm_state(self.orders.slurm)
            return "left Slurm's queue" if state == "" else None
        quiet = now - self._changed
        if job.telling.told_steps is not None and quiet > self.given.late_seconds:
            return "has told its total, and nothing came after it"
        return f"has done nothing for {quiet:.0f} s" if quiet > self.orders.silence else None

    def _conclude(self) -> None:
        """Report refutations, seal them, and act."""
        job = self.job
        self.judge.conclude(job, self.facts.path, self.add, self.say)
        if job.reported and not job.acted:
            self._act(job.reported, [fact["bundle"] for fact in job.sealed])

    def _act(self, refutations: Sequence[Refutation], bundles: Sequence[str]) -> None:
        """Perform the action once.

        A watcher that has failed does not end the job, because it may be wrong. For an ended job only the hook is
        called, because a short job may end before the first poll.
        """
        orders, job = self.orders, self.job
        if orders.action is Action.LOG or (job.is_over and not orders.hook):
            return
        problem = call_hook(orders.hook, job, refutations, bundles) if orders.hook else ""
        if problem:
            self.say(f"harness watch: {problem}")
        ends = False
        if orders.action is Action.NOTIFY or job.is_over:
            what = problem or "called the hook"
        elif job.broken:
            what = "nothing: the watcher failed before, and may be wrong; the job goes on"
        else:
            self.say(f"{orders.action}: the job is ended, because {refutations[0].why}")
            ends, what = end_job(orders.action, self.readers.process, orders.slurm, orders.grace)
        self._note({"fact": "acted", "at": self.now, "action": str(orders.action), "ends": ends, "what": what})
        self.say(f"{orders.action}: {what}")

    def _broke(self, error: Exception) -> bool:
        """Report that the watcher failed; it no longer ends the job. Returns whether to give up: the job has ended, and
        its remaining facts cannot be read or sealed.
        """
        self._failures += 1
        why = described(error)
        if why not in {fact["why"] for fact in self.job.broken}:
            self.say(f"harness watch: THE WATCHER FAILED: {why}; the job goes on, and from now on is not ended")
            self._note({"fact": "broken", "at": self.now, "why": why})
        if self._failures < _MOST_FAILURES or not (self.job.is_over or self._over()):
            return False
        if not self.job.is_over:
            self._note(self._ended("ended, unwatched,"))
            with suppress(Exception):
                self._conclude()
        return True

    def _note(self, fact: Fact) -> None:
        """Add a fact that counts even if a full disk prevents writing it."""
        try:
            fact = self.facts.append(fact)
        except Exception as error:
            self.say(f"harness watch: {self.facts.path} takes no facts: {described(error)}")
        self.job.apply(fact)
