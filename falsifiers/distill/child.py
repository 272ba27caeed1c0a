"""Runs in processes of their own: one that is killed, or exits, must not take the trial with it.

The child is forked off, so that it starts at once and with the trial's imports; that is why a trial that wants children
lets no subject compute in its own process before the last of them has ended.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness import NotMeasured, NotShown

__all__ = ["Child", "Report"]

Report = Callable[[int, float], None]
"""What the work in a child calls after each step, with the step and its loss; the parent gets both at once."""

_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class _Answer:
    """What the work returned."""

    value: Any


class Child:
    """A process that does some work, tells of its steps, and ends in whatever way it ends.

    Attributes:
        steps: the steps it told of, with their losses, in order.
        answer: what the work returned; None where it did not come to that.
        exit_code: as the shell knows it, or the signal's number, negative. An exception of the work exits with 1.
    """

    def __init__(self, work: Callable[[Report], Any], log: Path) -> None:
        """Start to work; what the process prints goes to the file `log`."""
        self.steps: list[tuple[int, float]] = []
        self.answer: Any = None
        self.exit_code = 0
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._messages, theirs = _FORK.Pipe(duplex=False)
        self._process = _FORK.Process(target=_live, args=(work, theirs, log), daemon=False)
        self._process.start()
        theirs.close()

    def follow(self) -> Iterator[int]:
        """Yield every step when it is told; ends when the process does.

        Raises:
            NotShown, NotMeasured: the work raised it, and so it did not end by any fault of the subject's.
        """
        hindered: NotMeasured | None = None
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                message = self._messages.recv()
                if isinstance(message, _Answer):
                    self.answer = message.value
                elif isinstance(message, NotMeasured):
                    hindered = message
                else:
                    self.steps.append(message)
                    yield message[0]
        self._process.join()
        self.exit_code = self._process.exitcode or 0
        if hindered is not None:
            raise hindered

    def finish(self) -> Child:
        """Wait for the end; raises as `follow` does."""
        for _ in self.follow():
            pass
        return self

    def kill(self) -> None:
        """SIGKILL, to the process and all that it started in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def log(self) -> str:
        """What the process printed."""
        return self._log.read_text(errors="replace")


def _live(work: Callable[[Report], Any], messages: Connection, log: Path) -> None:
    """The body of the child; multiprocessing prints what else is raised here and exits with 1."""
    os.setpgid(0, 0)
    printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    try:
        messages.send(_Answer(work(lambda step, loss: messages.send((step, loss)))))
    except NotMeasured as reason:  # by its text: of a subclass nobody knows whether it can be pickled
        messages.send((NotShown if isinstance(reason, NotShown) else NotMeasured)(str(reason)))
