"""Samples processes and all their descendants from outside, through psutil."""

from __future__ import annotations

import time
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, final

from harness.base import regular_file

if TYPE_CHECKING:
    import psutil

__all__ = ["ProcessTree", "Readings", "started", "stat_fields"]

Readings = tuple[dict[str, float | int | None], dict[str, str]]
"""Cells by column, and the reasons for those that are None."""

_DISCOVERY_SHARE = 0.003
"""Maximum share of one CPU for finding descendants, which reads all processes of the machine."""
_DEEPEST = 1000
"""Maximum generations to walk up. Processes start and end during the walk, so it needs a bound."""


def started(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it has ended.

    The id and the start together identify a process. Ids alone are reused.
    """
    fields = stat_fields(pid)
    # A zombie (Z) has ended, but keeps its entry until its parent waits for it.
    return None if fields is None or fields[0] == b"Z" else int(fields[19])


def _parent(pid: int) -> int | None:
    fields = stat_fields(pid)
    return None if fields is None else int(fields[1])


def stat_fields(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/<pid>/stat from the third (the state) on. The second may contain any character."""
    try:
        with regular_file.opened(Path(f"/proc/{pid}/stat")) as file:
            return file.read().rpartition(b")")[2].split() or None
    except OSError:
        return None


@final
class ProcessTree:
    """Monitors processes over time. A known process stays monitored when its parent ends."""

    def __init__(self) -> None:
        self._roots: list[int] = []
        self._known: dict[int, psutil.Process] = {}
        self._ever: set[int] = set()
        self._cpu: dict[int, float] = {}
        self._read_at: float | None = None
        self._discover_at = 0.0

    def owns(self, pid: int) -> bool:
        """Whether a process is or was part of the tree, even if no sample contains it yet."""
        line = [pid]
        while line[-1] not in self._ever:
            parent = _parent(line[-1])
            if not parent or len(line) > _DEEPEST:
                return False
            line.append(parent)
        self._ever.update(line)
        return True

    @property
    def is_suspended(self) -> bool:
        """Whether a signal has stopped one of the processes, as `scontrol suspend` does."""
        states = (stat_fields(pid) for pid in self._known)
        return any(fields is not None and fields[0] in (b"T", b"t") for fields in states)

    def delays(self) -> dict[str, int]:
        """Return the nanoseconds that each thread has waited for a CPU; empty if the kernel does not report it."""
        waits: dict[str, int] = {}
        for place in (path for pid in list(self._known) for path in glob(f"/proc/{pid}/task/*/schedstat")):
            with suppress(OSError, ValueError, IndexError), regular_file.opened(Path(place)) as file:
                waits[place] = int(file.read().split()[1])
        return waits

    def add(self, pid: int) -> None:
        """Monitor a process and its present and future descendants."""
        self._roots.append(pid)
        self._ever.add(pid)
        self._discover_at = 0.0

    def read(self) -> Readings:
        """Sample the tree. The columns are processes, rss_bytes, cpu_percent and system_available_bytes.

        `anonymous_bytes` is the part of rss_bytes that is no file and not shared, so the kernel cannot reclaim it.
        """
        import psutil

        self._discover(psutil.Process, psutil.Error)
        now = time.monotonic()
        rss = anonymous = 0
        cpu: dict[int, float] = {}
        for pid, process in list(self._known.items()):
            try:
                with process.oneshot():
                    memory = process.memory_info()
                    rss += memory.rss
                    anonymous += max(memory.rss - memory.shared, 0)
                    times = process.cpu_times()
                cpu[pid] = times.user + times.system
            except psutil.AccessDenied:
                continue
            except psutil.Error:
                del self._known[pid]
        cells: dict[str, float | int | None] = {"processes": len(cpu), "rss_bytes": rss or None, "cpu_percent": None}
        cells["anonymous_bytes"] = anonymous or None
        reasons: dict[str, str] = {}
        if not rss:
            reasons["rss_bytes"] = "no watched process was alive"
        if self._read_at is None:
            reasons["cpu_percent"] = "the first sample has no earlier one to compare with"
        elif now > self._read_at:
            spent = sum(seconds - self._cpu.get(pid, 0.0) for pid, seconds in cpu.items())
            cells["cpu_percent"] = round(100 * spent / (now - self._read_at), 1)
        self._cpu, self._read_at = cpu, now
        cells["system_available_bytes"] = psutil.virtual_memory().available
        return cells, reasons

    def _discover(self, process: type[psutil.Process], gone: type[Exception]) -> None:
        if time.monotonic() < self._discover_at:
            return
        before = time.thread_time()
        for pid in list(self._roots):
            try:
                root = self._known.get(pid) or process(pid)
                members = [root, *root.children(recursive=True)]
            except gone:
                continue
            for member in members:
                self._known.setdefault(member.pid, member)
                self._ever.add(member.pid)
        self._discover_at = time.monotonic() + (time.thread_time() - before) / _DISCOVERY_SHARE
