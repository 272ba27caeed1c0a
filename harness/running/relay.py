"""Passes events from the engine to the handlers that show or write them, so that a slow handler never delays a run."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from harness.running.events import Event, Handler, TrialStep

__all__ = ["Relay"]

_BACKLOG = 10_000
"""Most events that wait. Beyond it, steps are left out, because only the newest matter."""


class Relay:
    """A handler that passes every event to other handlers, one at a time and in order, in its own thread.

    Otherwise a stopped terminal or a waiting pager would block the reports of trials, and a blocked trial looks like a
    hang. A handler that raises gets no further events. Its exception is kept.
    """

    def __init__(self, handlers: Sequence[Handler]) -> None:
        self._handlers = list(handlers)
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._failures: list[tuple[Handler, Exception]] = []
        self._thread = threading.Thread(target=self._pass_on, name="reports", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Take an event from any thread. Returns at once."""
        if not isinstance(event, TrialStep) or self._events.qsize() < _BACKLOG:
            self._events.put(event)

    def close(self) -> Sequence[tuple[Handler, Exception]]:
        """Wait until all events are passed on. Return the handlers that raised, each with its exception."""
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
                    self._failures.append((handler, error))
