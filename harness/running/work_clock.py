"""The time in which at least one of several threads works."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["WorkClock"]


class WorkClock:
    """Sums up seconds: `busy` in which at least one trial of a claim worked, `waited` for devices that others held."""

    def __init__(self) -> None:
        self.busy = self.waited = 0.0
        self._count, self._since = 0, 0.0
        self._lock = threading.Lock()

    @contextmanager
    def working(self) -> Iterator[None]:
        """One thread works."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                if self._count == 0:
                    self.busy += time.monotonic() - self._since
