"""A run in a process of its own, which may be killed or exit without ending the trial.

The process is forked: it starts at once, with the trial's imports. A fork copies torch's state, so no subject may
compute in the trial's process before the last forked run has ended.
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

from harness import NotMeasured, NotObserved

Report = Callable[[int, float], None]
"""The work calls this after each step with the step and its loss, which the trial gets at once."""

_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class _Answer:
    """What the work returned."""

    value: Any


class ForkedRun:
    """A process that does some work and reports its steps. It may end in any way.

    Attributes:
        steps: the reported steps with their losses, in order.
        answer: what the work returned; None if it did not return.
        exit_code: the exit status, or the negative signal number. It is 1 for an exception of the work.
    """

    def __init__(self, work: Callable[[Report], Any], log: Path) -> None:
        """Start the work. The output of the process goes to the file `log`."""
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
        """Yield each step when it is reported; stop when the process ends.

        Raises:
            NotObserved, NotMeasured: the work raised it; the subject is not to blame.
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

    def finish(self) -> ForkedRun:
        """Wait for the end. Raises what `follow` raises."""
        for _ in self.follow():
            pass
        return self

    def kill(self) -> None:
        """Send SIGKILL to the process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def log(self) -> str:
        """What the process printed."""
        return self._log.read_text(errors="replace")


def _live(work: Callable[[Report], Any], messages: Connection, log: Path) -> None:
    """The body of the process. For other exceptions, multiprocessing prints the traceback and exits with 1."""
    os.setpgid(0, 0)
    printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    try:
        messages.send(_Answer(work(lambda step, loss: messages.send((step, loss)))))
    except NotMeasured as reason:  # by its text, because a subclass may not be picklable
        messages.send((NotObserved if isinstance(reason, NotObserved) else NotMeasured)(str(reason)))
