"""A line on a terminal for what takes long. A pipe gets none, and neither does short work with a known total.

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
    from rich.live import Live
    from rich.progress import Progress

__all__ = ["progress_line", "step_line"]

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
    due, progress = time.monotonic() + _PATIENCE, None

    def watch(done: int, total: int) -> None:
        nonlocal due, progress
        now = time.monotonic()
        if sys.stderr.isatty() and now >= due:
            due, progress = now + _BETWEEN, progress or _begun(what, total)
            progress.update(progress.task_ids[0], completed=done, total=total, refresh=True)

    try:
        yield watch
    finally:
        if progress is not None:
            progress.stop()


def step_line(what: str) -> Live:
    """Return a context that shows a step without a known end. It starts no thread, so the step may fork processes."""
    from rich.console import Console
    from rich.live import Live

    return Live(what, console=Console(file=sys.stderr), transient=True, auto_refresh=False)


def _begun(what: str, total: int) -> Progress:
    """Return a line that the caller draws, so that no thread exists when verifying forks processes."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(file=sys.stderr), transient=True, auto_refresh=False)
    progress.start()
    progress.add_task(what, total=total)
    return progress
