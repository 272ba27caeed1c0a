"""Ctrl-C, and the signals that end jobs and terminals: recorded during a run, so that no measurement is lost.

with Interruption() as interruption:
    …                                       # a signal is recorded
    with interruption.immediate():
        …                                   # a signal raises KeyboardInterrupt
    if interruption.requested:
        …
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interruption"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = 3
"""After so many signals, the next one interrupts at any point, because the user sees a hang."""


class Interruption:
    """Records whether the user or a scheduler requested the end of the run."""

    def __init__(self) -> None:
        self._signals = 0
        self._immediate = False
        self._before: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether the end was requested."""
        return self._signals > 0

    def request(self) -> None:
        """Request the end of the run, as the first signal does."""
        self._signals = max(self._signals, 1)

    def __enter__(self) -> Self:
        """Handle the signals, in the main thread. Ignored signals, as under nohup, stay ignored."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Restore the former handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """In the block, a signal raises KeyboardInterrupt, even one that arrived earlier. For waits without results."""
        self._immediate = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._immediate = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._immediate or self._signals >= _PATIENCE:
            raise KeyboardInterrupt
