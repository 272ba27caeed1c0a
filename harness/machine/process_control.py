"""Linux process control for trials: die with the parent, adopt orphans, and end a whole tree of descendants."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection

from harness.machine.process_tree import started, stat_fields

__all__ = ["adopt_orphans", "descendants", "die_with_parent", "end_adopted", "end_descendants", "end_tree", "strangers"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
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


def end_tree(root: int, began: int | None) -> None:
    """Kill all descendants of a process, and then the process, also if all of them are stopped.

    The process must adopt its orphans. Then none of them leaves its tree as long as it exists.

    Args:
        began: when the process started. Another process with this id is not killed.
    """
    deadline = time.monotonic() + _END_SECONDS
    while began is not None and started(root) == began and (below := descendants(root)):
        for pid in below:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    if began is not None and started(root) == began:
        with contextlib.suppress(OSError):
            os.kill(root, signal.SIGKILL)


def end_adopted(others: Collection[int]) -> None:
    """Kill and reap the processes that this one has adopted, if it adopts orphans.

    They are its children in other sessions: no process of a trial can join the session of the harness.

    Args:
        others: the children in other sessions from before the trials (see `strangers`). They stay.
    """
    adopts = ctypes.c_int()
    if _libc().prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0) != 0 or not adopts.value:
        return
    deadline = time.monotonic() + _END_SECONDS
    while (adopted := set(strangers()).difference(others)) and time.monotonic() < deadline:
        for pid in adopted:
            for one in (*descendants(pid), pid):
                with contextlib.suppress(OSError):
                    os.kill(one, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def strangers() -> list[int]:
    """The ids of the children of this process that are in other sessions."""
    own = os.getpid()
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        fields = stat_fields(pid)
        if fields is not None and int(fields[1]) == own and int(fields[3]) != os.getsid(0):
            found.append(pid)
    return found


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int) -> None:
    if _libc().prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
