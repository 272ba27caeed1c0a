"""How much memory a command takes: of its processes, the most that any one of them held at once.

The kernel keeps for every process the most that was resident (`VmHWM` in /proc/PID/status), counted anew from each
`exec`. It is read again and again while the command runs, since it is gone with the process. What `wait` returns
(`ru_maxrss`) is exact to the end, but is never less than what the process that started the command held itself
(`setmax_mm_hiwater_rss` in the kernel's `exec_mmap`): a trial has hundreds of MiB. It counts where it is clearly more.
"""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import psutil

__all__ = ["LargestProcess"]

_DISCOVERY_SHARE = 0.01
"""Of one processor, for finding descendants: that reads every process of the machine."""
_CLEARLY = 1.125
"""The kernel's counters are kept by processor and may lag; no process is taken for ours within an eighth of us."""


@final
class LargestProcess:
    """The most memory that one process of a command, or of what it started, was seen to hold."""

    def __init__(self, pid: int) -> None:
        """`pid` is the command's process, which has been through its `exec` already and was not waited for yet."""
        import psutil

        self._root: psutil.Process | None = None
        self._known: dict[int, psutil.Process] = {}
        self._discover_at = 0.0
        self._peak = 0
        self._waited_before = _waited_for()
        try:
            self._root = psutil.Process(pid)
        except psutil.Error:
            return
        self._known[pid] = self._root
        self.look()

    def look(self) -> None:
        """Read the high-water marks of those that live."""
        self._discover()
        for pid in list(self._known):
            mark = _high_water_mark(pid)
            if mark is None:
                del self._known[pid]
            else:
                self._peak = max(self._peak, mark)

    def bytes(self) -> int | None:
        """In bytes, after the command was waited for; None where nothing was seen of it."""
        waited = _waited_for()
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if waited > max(self._waited_before, own * _CLEARLY):
            return max(waited, self._peak)
        return self._peak or None

    def _discover(self) -> None:
        import psutil

        if self._root is None or time.monotonic() < self._discover_at:
            return
        before = time.thread_time()
        try:
            for child in self._root.children(recursive=True):
                self._known.setdefault(child.pid, child)
        except psutil.Error:
            pass  # it has ended; what it started is known from before
        self._discover_at = time.monotonic() + (time.thread_time() - before) / _DISCOVERY_SHARE


def _waited_for() -> int:
    """Of all processes that were waited for, the most that one held, or held that started it; in bytes."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _high_water_mark(pid: int) -> int | None:
    """The most that was resident of a process since its `exec`, in bytes; None where it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
