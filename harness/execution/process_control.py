"""Linux process control for trials: die with the parent, adopt orphans, and end a whole tree of descendants."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from harness.machine.process_tree import stat_fields

__all__ = ["adopt_orphans", "descendants", "die_with_parent", "end_descendants"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_END_SECONDS = 3.0


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies. Exits at once if `parent` has already ended."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every orphaned descendant, so that `end_descendants` finds them all."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int) -> list[int]:
    """The living descendants of a process, parents before children."""
    children: dict[int, list[int]] = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        fields = stat_fields(pid)
        if fields is not None and fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(pid)
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def end_descendants() -> bool:
    """Kill and reap every descendant of this process. Returns whether all ended in time."""
    deadline = time.monotonic() + _END_SECONDS
    while True:
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue  # it ended first
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)


def _prctl(option: int, argument: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
