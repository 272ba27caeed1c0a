"""A progress line on a terminal. A pipe gets none, and neither does short work.

with progress_line("indexing") as watch:
    contents = read(evidence, cache=cache, watch=watch)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["progress_line"]

_PATIENCE = 0.5
"""Seconds before the line appears."""
_BETWEEN = 0.1
"""Seconds between two updates of the line."""


@contextmanager
def progress_line(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with the number of items that are done and the total, as often as you like.

    Args:
        what: the work, such as "indexing bundles".
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    line = _Line(what)
    try:
        yield line
    finally:
        line.clear()


class _Line:
    """The line on standard error. The caller draws it, so that no thread exists when verifying forks processes."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + _PATIENCE
        self._drawn: tuple[Progress, TaskID] | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _BETWEEN
        progress, task = self._drawn = self._drawn or self._begun(total)
        progress.update(task, completed=done, total=total, refresh=True)

    def clear(self) -> None:
        if self._drawn is not None:
            self._drawn[0].stop()

    def _begun(self, total: int) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        progress = Progress(*columns, console=Console(file=sys.stderr), transient=True, auto_refresh=False)
        progress.start()
        return progress, progress.add_task(self._what, total=total)
