"""Passes events from the engine to the handlers that show or write them, so that a slow handler never delays a run."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from harness.run.events import Event, Handler, TrialStep

__all__ = ["Relay"]

_BACKLOG = 10_000
"""Events that may wait. Beyond it steps are left out, of which only the newest are of interest."""


class Relay:
    """A handler that passes every event to others, one at a time and in order, in a thread of its own.

    A pager that nobody scrolls on, or a terminal that was stopped, would else keep trials from reporting, and a trial
    that waits looks as if it hung. A handler that raises gets no further events; its exception is kept.
    """

    def __init__(self, handlers: Sequence[Handler]) -> None:
        self._handlers = list(handlers)
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._failures: list[Exception] = []
        self._thread = threading.Thread(target=self._pass_on, name="reports", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Take an event, from any thread; returns at once."""
        if not isinstance(event, TrialStep) or self._events.qsize() < _BACKLOG:
            self._events.put(event)

    def close(self) -> Sequence[Exception]:
        """Wait until all events were passed on; what went wrong on the way."""
        self._events.put(None)
        self._thread.join()
        return self._failures

    def _pass_on(self) -> None:
        while (event := self._events.get()) is not None:
            for handler in list(self._handlers):
                try:
                    handler(event)
                except Exception as error:
                    self._handlers.remove(handler)
                    self._failures.append(error)
