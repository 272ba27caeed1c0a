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
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

__all__ = ["Limits", "Stopped", "isolated"]


@dataclass(frozen=True)
class Limits:
    """What the work may use."""

    seconds: float = 60.0
    memory_bytes: int = 1 << 30
    """Beyond what this process has already."""
    answer_bytes: int = 8 << 20


class Stopped(Exception):
    """The work did not come to its end; the text says why."""


def isolated(work: Callable[[], bytes], limits: Limits) -> bytes:
    """What `work` returns.

    Raises:
        Stopped: it took too long or too much, raised, or its process died.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, writing, limits)
    os.close(writing)
    status = None
    try:
        answer = _read(reading, limits)
        status = os.waitpid(child, 0)[1]
    finally:
        os.close(reading)
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise Stopped(f"died of {signal.Signals(os.WTERMSIG(status)).name}")
    if os.WEXITSTATUS(status) != 0:
        raise Stopped(answer.decode("utf-8", errors="replace") or "its process ended without a word")
    return answer


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


def _read(descriptor: int, limits: Limits) -> bytes:
    deadline = time.monotonic() + limits.seconds
    chunks: list[bytes] = []
    size = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise Stopped(f"did not end within {limits.seconds:g} s")
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        size += len(chunk)
        if size > limits.answer_bytes:
            raise Stopped(f"had more than {limits.answer_bytes} bytes to say")


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _virtual_memory() -> int:
    """Bytes of address space that this process has."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
