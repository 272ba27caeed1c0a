"""Runs the tasks of a schedule, each in a thread, as soon as their resources are free."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import final

from harness.running.interruption import Interruption
from harness.running.scheduler import Amounts, Schedule, Task

__all__ = ["Pool", "Turn", "TurnInterrupted"]

_LOOK_SECONDS = 0.1
"""Seconds between two checks for an interruption."""


class TurnInterrupted(Exception):
    """The run was interrupted before the task did anything that would be lost."""


@final
class Turn:
    """The pool's side of a task, in the task's thread."""

    def __init__(
        self, task: Task, amounts: Amounts, inbox: Inbox, schedule: Schedule, interruption: Interruption
    ) -> None:
        self.task, self.amounts = task, amounts
        self._inbox, self._schedule, self._interruption = inbox, schedule, interruption
        self.granted = threading.Event()
        self.is_idle = False
        """Whether nothing would be lost if the process ended now."""
        self._is_paused = False

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
            if self._interruption.requested:
                raise TurnInterrupted  # also in place of an error that the interruption caused
            self.is_idle = False

    def pause(self, kept: Collection[str]) -> None:
        """Give back all resources but these, before a wait for another process."""
        if not self._is_paused:
            self._is_paused = True
            self.granted.clear()
            self._inbox.put(partial(self._schedule.pause, self.task.name, kept))

    def resume(self) -> None:
        """Wait until the resources are back, or for an interruption. Does nothing if none were given back."""
        if self._is_paused:
            self._is_paused = False
            self._inbox.put(partial(self._schedule.resume, self.task.name))
            while not (self.granted.wait(_LOOK_SECONDS) or self._interruption.requested):
                pass


Inbox = queue.Queue[Callable[[], None]]
Work = Callable[[Turn], Collection[Task]]
"""Does a task. Returns the tasks that come after it."""


@final
class Pool:
    """Threads that do the tasks of one schedule."""

    def __init__(self, schedule: Schedule, work: Work, interruption: Interruption) -> None:
        self._schedule, self._work, self._interruption = schedule, work, interruption
        self._inbox: Inbox = queue.Queue()
        """The requests of the threads. Only one thread uses the schedule.

        A SimpleQueue of Python 3.11 can wait for ever if a signal interrupts `get` when its timeout is over.
        """
        self._turns: dict[str, Turn] = {}
        self._defect: BaseException | None = None

    def run(self, interrupt: Callable[[], None]) -> None:
        """Do all tasks. After an interruption no task starts, and the idle ones are left behind.

        An exception of a task is an interruption, too. It is raised at the end.

        Args:
            interrupt: ends the tasks that run. It is called once, after an interruption.
        """
        while not self._schedule.is_over and not self._interruption.requested:
            for task, amounts in self._schedule.start():
                self._grant(task, amounts)
            self._listen()
        if self._interruption.requested:
            interrupt()
            while any(not turn.is_idle for turn in list(self._turns.values())):
                self._listen()
        if self._defect is not None:
            raise self._defect

    def discard(self, names: Collection[str]) -> None:
        """Do not start these tasks any more. Any thread may call this."""
        self._inbox.put(partial(self._schedule.discard, names))

    def _listen(self) -> None:
        with suppress(queue.Empty):
            self._inbox.get(timeout=_LOOK_SECONDS)()
            while True:
                self._inbox.get_nowait()()

    def _grant(self, task: Task, amounts: Amounts) -> None:
        if (turn := self._turns.get(task.name)) is not None:
            turn.granted.set()
            return
        turn = self._turns[task.name] = Turn(task, amounts, self._inbox, self._schedule, self._interruption)
        threading.Thread(target=self._do, args=(turn,), name=task.name, daemon=True).start()

    def _do(self, turn: Turn) -> None:
        try:
            following = self._work(turn)
        except TurnInterrupted:
            turn.is_idle = True
        except BaseException as error:
            self._inbox.put(partial(self._fail, turn, error))
        else:
            self._inbox.put(partial(self._end, turn, following))

    def _end(self, turn: Turn, following: Collection[Task]) -> None:
        del self._turns[turn.task.name]
        self._schedule.end(turn.task.name)
        for task in following:
            self._schedule.add(task)

    def _fail(self, turn: Turn, error: BaseException) -> None:
        self._end(turn, ())
        self._defect = self._defect or error
        self._interruption.request()
