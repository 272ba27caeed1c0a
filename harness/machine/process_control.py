"""Linux process control for trials: die with the parent, adopt orphans, and end a whole tree of descendants."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator

from harness.machine.process_tree import started, stat_fields

__all__ = ["adopt_orphans", "adopting", "descendants", "die_with_parent", "end_descendants", "end_tree"]

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
    """Return the running descendants of a process, parents before children."""
    children: dict[int, list[int]] = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        fields = stat_fields(pid)
        if fields is not None and fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(pid)
    pids, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        pids += below
        queue += below
    return pids


def end_descendants() -> bool:
    """Kill and reap every descendant of this process. Returns whether all ended in time."""
    deadline = time.monotonic() + _END_SECONDS
    while True:
        _kill(descendants(os.getpid()))
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)


def end_tree(root: int, began: int | None) -> None:
    """Kill all descendants of a process, and then the process, even if they are suspended.

    The process must adopt its orphans, so that none of them leaves its tree while it exists.

    Args:
        began: when the process started. Another process with this id is not killed.
    """
    deadline = time.monotonic() + _END_SECONDS
    while began is not None and started(root) == began and (below := descendants(root)):
        _kill(below)
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    if began is not None and started(root) == began:
        _kill([root])


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            os.kill(pid, signal.SIGKILL)


class _Adopting:
    """The number of active blocks that adopt orphans, and the state before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks = 0
        self.others: frozenset[int] = frozenset()
        self.adopted_before = False


_ADOPTING = _Adopting()


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Adopt the orphans of trials during the block, and end them at its end.

    Code under test can kill every other process that would end what it leaves. Of several blocks at a time, the last
    one ends the orphans. They are children in other sessions: no process of a trial can join this one's. Children from
    before stay, and those that this process has started with `subprocess` meanwhile.
    """
    state = _ADOPTING
    with state.lock:
        if not state.blocks:
            state.others, state.adopted_before = frozenset(_strangers()), _adopts()
            adopt_orphans()
        state.blocks += 1
    try:
        yield
    finally:
        with state.lock:
            state.blocks -= 1
            if not state.blocks:
                _end_adopted(state.others)
                if not state.adopted_before:
                    _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _end_adopted(others: frozenset[int]) -> None:
    """Kill and reap the children in other sessions, except `others` and those that this process started."""
    deadline = time.monotonic() + _END_SECONDS
    while (strangers := frozenset(_strangers()) - others) and time.monotonic() < deadline:
        if not (adopted := strangers - _started_here()):
            return
        for pid in adopted:
            _kill((*descendants(pid), pid))
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def _started_here() -> set[int]:
    """Return the ids of the processes that this process started with `subprocess`."""
    return {popen.pid for popen in gc.get_objects() if isinstance(popen, subprocess.Popen)}


def _adopts() -> bool:
    answer = ctypes.c_int()
    return _libc().prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0) == 0 and bool(answer.value)


def _strangers() -> list[int]:
    """Return the ids of the children of this process in other sessions."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []  # there is no child, so other processes need not be read
    own = os.getpid()
    pids = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        fields = stat_fields(pid)
        if fields is not None and int(fields[1]) == own and int(fields[3]) != os.getsid(0):
            pids.append(pid)
    return pids


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int) -> None:
    if _libc().prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
