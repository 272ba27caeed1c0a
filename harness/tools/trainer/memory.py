"""The memory of a command: the peak of its largest process.

The kernel records the peak resident memory of each process (`VmHWM` in /proc/PID/status), reset by each `exec`. It is
read repeatedly while the command runs, because it disappears with the process. `wait` returns a peak (`ru_maxrss`) that
is exact to the end, but never less than the memory of the process that started the command (`setmax_mm_hiwater_rss` in
the kernel's `exec_mmap`), which is hundreds of MiB for a trial. So it counts only if it is clearly larger.
"""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import final

from harness.base import regular_file
from harness.machine.process_tree import stat_fields

__all__ = ["LargestProcess"]

_DISCOVERY_SHARE = 0.01
"""Share of one processor for finding descendants, which reads every process of the machine."""
_CLEARLY = 1.125
"""`ru_maxrss` counts if it exceeds our own memory by this factor. The kernel's counters, one per processor, can lag."""


@final
class LargestProcess:
    """The peak memory of the largest process of a command, its descendants included."""

    def __init__(self, pid: int) -> None:
        """`pid` is the command's process, after its `exec` and before it is waited for."""
        import psutil

        self._root, self._known = psutil.Process(pid), {pid}
        self._discover_at = 0.0
        self._peak = 0
        self._waited_before = _waited_for()
        self.look()

    def look(self) -> None:
        """Read the peaks of the processes that are alive."""
        self._discover()
        for pid in list(self._known):
            mark = _high_water_mark(pid)
            if mark is None:
                self._known.remove(pid)
            else:
                self._peak = max(self._peak, mark)

    def processor_seconds(self) -> float:
        """The processor time of the processes that are alive, in seconds."""
        return sum(map(_processor_seconds, self._known))

    def bytes(self) -> int | None:
        """The peak in bytes, after the command was waited for; None if it is unknown."""
        waited = _waited_for()
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if waited > max(self._waited_before, own * _CLEARLY):
            return max(waited, self._peak)
        return self._peak or None

    def _discover(self) -> None:
        import psutil

        if time.monotonic() < self._discover_at:
            return
        before = time.thread_time()
        with suppress(psutil.Error):  # it has ended; its descendants are known from before
            self._known.update(child.pid for child in self._root.children(recursive=True))
        self._discover_at = time.monotonic() + (time.thread_time() - before) / _DISCOVERY_SHARE


def _processor_seconds(pid: int) -> float:
    """The user and system time of a process; 0 if it has ended."""
    fields = stat_fields(pid)
    return 0.0 if fields is None else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _waited_for() -> int:
    """The peak of the largest process that was waited for, or of the process that started it, in bytes."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _high_water_mark(pid: int) -> int | None:
    """The peak resident memory of a process since its `exec`, in bytes; None if it has ended."""
    try:
        with regular_file.opened(Path(f"/proc/{pid}/status")) as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
