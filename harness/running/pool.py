"""Runs the tasks of a schedule, each in a thread, as soon as their resources are free."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import final

from harness.running.interruption import Interruption
from harness.running.scheduler import Amounts, Schedule, Task

__all__ = ["Pool", "Turn", "TurnInterrupted"]

_LOOK_SECONDS = 0.1
"""Seconds between two checks for an interruption."""


class TurnInterrupted(Exception):
    """The run was interrupted before the task had results."""


@final
class Turn:
    """The interface of the pool for a task, in the task's thread."""

    def __init__(self, pool: Pool, task: Task, amounts: Amounts) -> None:
        self.task, self.amounts, self._pool = task, amounts, pool
        self.is_idle = False
        """Whether the process could end now without losing results."""
        self.is_paused = False

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Mark work that an interruption may end at any point: a wait, an import.

        Raises:
            TurnInterrupted: the run was interrupted meanwhile.
        """
        self.is_idle = True
        try:
            yield
        finally:
            if self._pool.interruption.requested:
                raise TurnInterrupted  # also in place of an error that the interruption caused
            self.is_idle = False

    def pause(self, retained: Collection[str]) -> None:
        """Release all resources but these, before a wait for another process."""
        with self._pool.changed:
            if not self.is_paused:
                self.is_paused = True
                self._pool.schedule.pause(self.task.name, retained)
                self._pool.changed.notify_all()

    def resume(self) -> None:
        """Wait until the released resources are available again, or for an interruption."""
        with self._pool.changed:
            if self.is_paused:
                self._pool.schedule.resume(self.task.name)
                self._pool.changed.notify_all()
            while self.is_paused and not self._pool.interruption.requested:
                self._pool.changed.wait(_LOOK_SECONDS)


Work = Callable[[Turn], Collection[Task]]
"""Executes a task. Returns the tasks that follow."""


@final
class Pool:
    """Executes the tasks of one schedule in threads."""

    def __init__(self, schedule: Schedule, work: Work, interruption: Interruption) -> None:
        self.schedule, self.interruption = schedule, interruption
        self.changed = threading.Condition()
        """Guards the schedule; notified when it has changed."""
        self._work = work
        self._turns: dict[str, Turn] = {}
        self._defect: BaseException | None = None

    def run(self, interrupt: Callable[[], None]) -> None:
        """Execute all tasks. After an interruption no task starts, and idle ones are abandoned.

        An exception of a task is an interruption too, and is raised at the end.

        Args:
            interrupt: ends the running tasks. It is called once, after an interruption.
        """
        with self.changed:
            while not self.schedule.is_over and not self.interruption.requested:
                for task, amounts in self.schedule.start():
                    self._grant(task, amounts)
                self.changed.wait(_LOOK_SECONDS)
        if self.interruption.requested:
            interrupt()
            with self.changed:
                while any(not turn.is_idle for turn in self._turns.values()):
                    self.changed.wait(_LOOK_SECONDS)
        if self._defect is not None:
            raise self._defect

    def discard(self, names: Collection[str]) -> None:
        """Remove these tasks, unless they have started. Any thread may call this."""
        with self.changed:
            self.schedule.discard(names)
            self.changed.notify_all()

    def _grant(self, task: Task, amounts: Amounts) -> None:
        if (turn := self._turns.get(task.name)) is not None:
            turn.is_paused = False
            self.changed.notify_all()
            return
        turn = self._turns[task.name] = Turn(self, task, amounts)
        threading.Thread(target=self._do, args=(turn,), name=task.name, daemon=True).start()

    def _do(self, turn: Turn) -> None:
        try:
            self._end(turn, self._work(turn))
        except TurnInterrupted:
            turn.is_idle = True
        except BaseException as error:
            self._defect = self._defect or error
            self.interruption.request()
            self._end(turn, ())

    def _end(self, turn: Turn, following: Collection[Task]) -> None:
        with self.changed:
            if self._turns.pop(turn.task.name, None) is not None:
                self.schedule.end(turn.task.name)
            for task in following:
                self.schedule.add(task)
            self.changed.notify_all()
