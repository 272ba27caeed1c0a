"""Work on what strangers sent, in a process that may not outlive its time or its memory.

A contract can make a reference expand without end and a rule run for years, inside libraries that no exception and no
signal handler of Python's reaches. So such work is done in a fork of this process, which is killed when it must be.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

__all__ = ["Limits", "Stopped", "isolated_all"]

_GRACE_SECONDS = 1.0
"""How long a process may take to end after its last word; the others are not listened to meanwhile."""
_AHEAD = 8
"""How many works may be begun before the first of them is done, for each that runs: their answers are kept."""


@dataclass(frozen=True)
class Limits:
    """What the work may use."""

    seconds: float = 60.0
    memory_bytes: int = 1 << 30
    """Beyond what this process has already."""
    answer_bytes: int = 8 << 20


class Stopped(Exception):
    """The work took too long or too much, raised, or its process died; the text says which."""


def isolated_all(works: Iterable[Callable[[], bytes]], limits: Limits, side_by_side: int) -> Iterator[bytes | Stopped]:
    """What each work returns, in their order, or how it was stopped; so many at a time, each in a fork of its own.

    A fork costs a few milliseconds, and is why nothing that one work did can reach the next.
    """
    waiting = iter(works)
    begun: deque[_Child] = deque()  # in order; those at its right end may be done before those at its left
    try:
        more = True
        while more or begun:
            while more and len(begun) < _AHEAD * side_by_side and _running(begun) < side_by_side:
                work = next(waiting, None)
                if work is None:
                    more = False
                else:
                    begun.append(_Child(work, limits))
            while begun and begun[0].outcome is not None:
                yield begun.popleft().outcome  # type: ignore[misc]  # which is not None
            running = [child for child in begun if child.outcome is None]
            if running:
                soonest = min(child.deadline for child in running) - time.monotonic()
                ready = select.select(running, [], [], max(0.0, soonest))[0]
                for child in running:
                    child.look(child in ready)
    finally:
        for child in begun:
            child.stop()


def _running(children: Iterable[_Child]) -> int:
    return sum(child.outcome is None for child in children)


class _Child:
    """One work, in its process."""

    def __init__(self, work: Callable[[], bytes], limits: Limits) -> None:
        self.outcome: bytes | Stopped | None = None
        """None while it runs."""
        self.deadline = time.monotonic() + limits.seconds
        self._limits = limits
        self._chunks: list[bytes] = []
        self._size = 0
        self._reading, writing = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(self._reading)
            _work(work, writing, limits)
        os.close(writing)

    def fileno(self) -> int:
        """For select."""
        return self._reading

    def look(self, ready: bool) -> None:
        """Take what it said, where it said something; stop it where its time is up."""
        if not ready:
            if time.monotonic() >= self.deadline:
                self.stop(f"did not end within {self._limits.seconds:g} s")
            return
        chunk = os.read(self._reading, 1 << 16)
        self._chunks.append(chunk)
        self._size += len(chunk)
        if not chunk:
            self._end()
        elif self._size > self._limits.answer_bytes:
            self.stop(f"had more than {self._limits.answer_bytes} bytes to say")

    def stop(self, reason: str = "was not waited for") -> None:
        """End it now, if it still runs."""
        if self.outcome is None:
            self.outcome = Stopped(reason)
            os.close(self._reading)
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)

    def _end(self) -> None:
        answer = b"".join(self._chunks)
        status = _ended(self._process, _GRACE_SECONDS)
        if status is None:  # it closed its end of the pipe, and goes on
            self.stop("did not end after its last word")
            return
        os.close(self._reading)
        if os.WIFSIGNALED(status):
            self.outcome = Stopped(f"died of {signal.Signals(os.WTERMSIG(status)).name}")
        elif os.WEXITSTATUS(status) != 0:
            self.outcome = Stopped(answer.decode("utf-8", errors="replace") or "its process ended without a word")
        else:
            self.outcome = answer


def _work(work: Callable[[], bytes], writing: int, limits: Limits) -> NoReturn:
    code = 1
    try:
        # The alarm's default action ends the process also where the parent can no longer do so.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limits.seconds + 5)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit(resource.RLIMIT_AS, _virtual_memory() + limits.memory_bytes)
        silence = os.open(os.devnull, os.O_RDWR)  # a library that panics prints; that is not for the user's terminal
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        faulthandler.disable()  # which may hold another descriptor of the terminal
        answer = work()
        code = 0
    except BaseException as error:  # whatever it is, this process must not return into its parent's code
        answer = f"broke off with {type(error).__name__}: {error}"[:500].encode("utf-8", errors="replace")
    with contextlib.suppress(BaseException):
        view = memoryview(answer)
        while view:
            view = view[os.write(writing, view) :]
        os._exit(code)
    os._exit(1)


def _ended(process: int, seconds: float) -> int | None:
    """The status of a process that is about to end; None where it does not in time."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.0005)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _virtual_memory() -> int:
    """Bytes of address space that this process has."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
