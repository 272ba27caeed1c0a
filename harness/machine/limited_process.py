"""Runs work on untrusted input or with a user's code in a process with limited time and memory.

    answer = isolated(lambda: strictjson.dumps(work()).encode(), Limits(seconds=60))

    done = completed(["g++", "step.cpp"], 600)     # a command, in the same way

The work returns bytes. They count only if the work wrote all of them: a process that ends in any other way, even with
status 0, is `Stopped`. Each process ends with this one, also if this one is killed. Work that may start processes of
its own says so (`Limits.descendants`); they end with it.

A hostile contract can expand a reference without end, or make a rule run for years, inside libraries that neither an
exception nor a signal handler of Python can interrupt. So such work runs in a fork of this process, which can be
killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness.base import regular_file
from harness.base.shortening import described
from harness.machine.process_control import adopt_orphans, die_with_parent, end_descendants

__all__ = ["Limits", "Stopped", "completed", "decoded", "isolated", "isolated_all"]

_GRACE_SECONDS = 1.0
"""Time limit for a process to end after it closed its pipe. The other processes wait meanwhile."""
_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0
"""Time limit for a process to end its descendants."""
_WHOLE = b"\n+"
"""Marks the end of an answer. Without it, the answer is truncated."""
_END_OF_OUTPUT = 256 << 10
"""Maximum bytes of a command's output, from its end."""
_AHEAD = 8
"""Maximum works per running process that start before the first is done. Their answers stay in memory."""


@dataclass(frozen=True)
class Limits:
    """Limits of one work."""

    seconds: float = 60.0
    """CPU time of its own process. On a busy machine, the work may take longer. `inf` sets no limit."""
    elapsed: float = 600.0
    """Seconds until the work is stopped even if it used no CPU time. A pause of the caller does not count."""
    memory_bytes: int | None = 1 << 30
    """Address space, in addition to what this process has already. None sets no limit, as CUDA requires."""
    answer_bytes: int = 8 << 20
    descendants: bool = False
    """Whether the work may start processes. All of them end with the work, or with this process."""
    speaks: bool = False
    """Whether the work's stdout and stderr go to this process's stderr; otherwise nowhere."""


class Stopped(Exception):
    """The work exceeded a limit or raised, or its process died; the text says which."""


def isolated(work: Callable[[], bytes], limits: Limits, ended: Callable[[], bool] = lambda: False) -> bytes:
    """Run a work in a fork. Return what it returns.

    Args:
        ended: as for `isolated_all`.

    Raises:
        Stopped: there is no whole answer.
    """
    (answer,) = isolated_all([work], limits, 1, ended)
    if isinstance(answer, Stopped):
        raise answer
    return answer


def completed(
    command: Sequence[str],
    seconds: float = math.inf,
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    speaks: bool = False,
    ended: Callable[[], bool] = lambda: False,
) -> subprocess.CompletedProcess[str]:
    """Run a command. It and all that it starts end after `seconds`, or with this process.

    Args:
        environment: all of its variables; None for those of this process.
        speaks: its output goes to this process's stderr, and not into the result.
        ended: asked ten times a second; while it is true, the command is stopped.

    Returns:
        Its exit status, and the ends of its output and errors. Its standard input is empty.

    Raises:
        Stopped: it did not start, or did not end in time.
    """
    pipe = None if speaks else subprocess.PIPE

    def work() -> bytes:
        done = subprocess.run(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        tails = [(text or b"")[-_END_OF_OUTPUT:].decode("utf-8", "replace") for text in (done.stdout, done.stderr)]
        return json.dumps([done.returncode, *tails]).encode("ascii")

    answer = isolated(work, Limits(math.inf, seconds, None, descendants=True, speaks=speaks), ended)
    return subprocess.CompletedProcess(command, *json.loads(answer))


def decoded(answer: bytes) -> Any:
    """Parse the JSON document of a work. The harness wrote it, so its form is not checked."""
    return json.loads(answer)


def isolated_all(
    works: Iterable[Callable[[], bytes]],
    limits: Limits,
    side_by_side: int,
    ended: Callable[[], bool] = lambda: False,
) -> Iterator[bytes | Stopped]:
    """Run each work in a fork of its own. Yield, in order, what each returns or how it was stopped.

    A fork costs a few milliseconds. In return, no work can affect the next one. A KeyboardInterrupt kills them all.

    Args:
        side_by_side: how many run at the same time.
        ended: called ten times a second; while it returns true, running works are stopped.
    """
    waiting = iter(works)
    begun: deque[_Child] = deque()  # in order; a later one may be done before an earlier one
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
                started = time.monotonic()
                yield begun.popleft().outcome  # type: ignore[misc]  # the outcome is not None here
                for child in begun:  # a caller who pauses does not read the answers meanwhile
                    child.deadline += time.monotonic() - started
            running = [child for child in begun if child.outcome is None]
            if running:
                soonest = min(child.deadline for child in running) - time.monotonic()
                ready = select.select(running, [], [], min(_LOOK_SECONDS, max(0.0, soonest)))[0]
                for child in running:
                    if ended():
                        child.stop("was ended")
                    else:
                        child.look(child in ready)
    finally:
        for child in begun:
            child.stop()


def _running(children: Iterable[_Child]) -> int:
    return sum(child.outcome is None for child in children)


class _Child:
    """The process of one work."""

    def __init__(self, work: Callable[[], bytes], limits: Limits) -> None:
        self.outcome: bytes | Stopped | None = None
        """None while it runs."""
        self.deadline = time.monotonic() + limits.elapsed
        self._limits = limits
        self._chunks: list[bytes] = []
        self._size = 0
        self._reading, writing = os.pipe()
        parent, collects = os.getpid(), gc.isenabled()
        gc.disable()  # the caller's garbage stays: a finalizer, as wgpu's, may wait for threads that no fork has
        try:
            self._process = os.fork()
            if self._process == 0:
                os.close(self._reading)
                gc.freeze()
                gc.enable()
                if limits.descendants:
                    _supervise(work, writing, limits, parent)
                _work(work, writing, limits, parent)
        finally:
            if collects:
                gc.enable()
            os.close(writing)

    def fileno(self) -> int:
        """The descriptor for `select`."""
        return self._reading

    def look(self, ready: bool) -> None:
        """Read from the process if it is ready; else stop it if its time is up."""
        if not ready:
            if time.monotonic() >= self.deadline:
                self.stop(f"did not end within {self._limits.elapsed:g} s")
            return
        chunk = os.read(self._reading, regular_file.CHUNK)
        self._chunks.append(chunk)
        self._size += len(chunk)
        if not chunk:
            self._end()
        elif self._size > self._limits.answer_bytes + len(_WHOLE):
            self.stop(f"answered with more than {self._limits.answer_bytes} bytes")

    def stop(self, reason: str = "was not waited for") -> None:
        """Kill the process if it still runs."""
        if self.outcome is None:
            self.outcome = Stopped(reason)
            os.close(self._reading)
            if self._limits.descendants:
                os.kill(self._process, signal.SIGTERM)
                if _ended(self._process, _END_SECONDS) is not None:
                    return
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)

    def _end(self) -> None:
        answer = b"".join(self._chunks)
        status = _ended(self._process, _END_SECONDS if self._limits.descendants else _GRACE_SECONDS)
        if status is None:  # it closed its end of the pipe, but still runs
            self.stop("did not end after it answered")
            return
        os.close(self._reading)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGXCPU):
            self.outcome = Stopped(f"used more than {self._limits.seconds:g} s of CPU time")
        elif os.WIFSIGNALED(status):
            self.outcome = Stopped(f"died of {signal.Signals(os.WTERMSIG(status)).name}")
        elif not answer.endswith(_WHOLE):
            self.outcome = Stopped("its process ended without an answer")
        elif os.WEXITSTATUS(status) != 0:
            self.outcome = Stopped(answer.removesuffix(_WHOLE).decode("utf-8", errors="replace"))
        else:
            self.outcome = answer.removesuffix(_WHOLE)


def _supervise(work: Callable[[], bytes], writing: int, limits: Limits, parent: int) -> NoReturn:
    """Run a work in a child. When the child or the parent ends, end all descendants and exit like the child."""
    try:
        signals: list[int] = []
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
        os.setsid()
        adopt_orphans()
        supervisor = os.getpid()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _work(work, writing, limits, supervisor)
        os.close(writing)
        ended = status = 0
        while not (ended or signals or os.getppid() != parent):
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0 if ended else 0.02)
        end_descendants()
        if ended and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.kill(os.getpid(), number)
        os._exit(os.WEXITSTATUS(status) if ended else 1)
    finally:
        os._exit(1)


def _work(work: Callable[[], bytes], writing: int, limits: Limits, parent: int) -> NoReturn:
    code, this = 1, os.getpid()
    try:
        # The default actions of signals end this process inside any library.
        die_with_parent(parent)
        for number in (signal.SIGPROF, signal.SIGXCPU):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGPROF, signal.SIGXCPU))
        if math.isfinite(limits.seconds):
            signal.setitimer(signal.ITIMER_PROF, limits.seconds)
            _limit(resource.RLIMIT_CPU, math.ceil(limits.seconds) + 5)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limits.memory_bytes is not None:
            _limit(resource.RLIMIT_AS, _virtual_memory() + limits.memory_bytes)
        silence = os.open(os.devnull, os.O_RDWR)  # keep a panicking library off the user's terminal
        for descriptor, source in ((0, silence), (1, 2 if limits.speaks else silence), (2, silence)):
            if descriptor != 2 or not limits.speaks:
                os.dup2(source, descriptor)
        if not limits.speaks:
            faulthandler.disable()  # it may hold another descriptor of the terminal
        answer = work()
        code = 0
    except BaseException as error:  # this process must never return into its parent's code
        answer = f"broke off with {described(error)}"[:500].encode("utf-8", errors="replace")
    with contextlib.suppress(BaseException):
        if os.getpid() != this:  # the work forked, and this is not its process
            os._exit(1)
        if limits.speaks:
            sys.stdout.flush()
            sys.stderr.flush()
        view = memoryview(answer + _WHOLE)
        while view:
            view = view[os.write(writing, view) :]
        os._exit(code)
    os._exit(1)


def _ended(process: int, seconds: float) -> int | None:
    """Return the exit status of a process that is about to end; None if it does not end in time."""
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
    """Return the bytes of address space of this process."""
    return int(regular_file.read(Path("/proc/self/statm")).split()[0]) * resource.getpagesize()
