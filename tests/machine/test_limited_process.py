"""Work in its own process: the caller always gets an answer or a reason, in time."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from harness.machine import limited_process
from harness.machine.limited_process import Limits, Stopped, isolated, isolated_all

LIMITS = Limits(seconds=0.5, elapsed=60.0, memory_bytes=256 << 20, answer_bytes=1 << 20)


def test_the_answer_comes_back_whole() -> None:
    """The answer is complete, although it is larger than the buffer of a pipe."""
    assert isolated(lambda: b"x" * 1_000_000, LIMITS) == b"x" * 1_000_000


def crash() -> bytes:
    ctypes.string_at(0)
    return b""


def sleep_inside_a_library() -> bytes:
    """Sleep in a library, so that neither an exception nor a signal handler of Python can interrupt."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM})
    ctypes.PyDLL(None).sleep(60)  # with the interpreter's lock held
    return b""


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda: sum(iter(int, 1)), id="endless"),
        pytest.param(crash, id="crash"),
        pytest.param(lambda: os.abort(), id="abort"),
        pytest.param(lambda: os._exit(3), id="no answer"),
        pytest.param(lambda: sys.exit(0), id="exit"),
        pytest.param(lambda: bytearray(1 << 30), id="memory"),
        pytest.param(lambda: {}["key"], id="error"),
        pytest.param(lambda: b"x" * (2 << 20), id="long answer"),
    ],
)
def test_work_that_fails_is_a_reason(work: Callable[[], bytes], snapshot: SnapshotAssertion) -> None:
    """Each kind of failure has its own text, and no process is left."""
    before = set(psutil.Process().children())
    with pytest.raises(Stopped) as stopped:
        isolated(work, LIMITS)
    assert str(stopped.value) == snapshot
    assert set(psutil.Process().children()) == before


def test_ctrl_c_ends_all_works() -> None:
    """Ctrl-C ends verify and lint at once, whatever they judge."""
    caller = os.getpid()
    before = set(psutil.Process().children())
    reading, writing = os.pipe()

    def work() -> bytes:
        os.read(reading, 1)  # until the caller is past os.fork(), where Python drops a KeyboardInterrupt
        os.kill(caller, signal.SIGINT)
        return sleep_inside_a_library()

    with pytest.raises(KeyboardInterrupt):
        list(isolated_all([sleep_inside_a_library, work], Limits(), 2, lambda: os.write(writing, b"x") == 0))
    os.close(reading)
    os.close(writing)
    assert set(psutil.Process().children()) == before


def test_works_can_be_ended() -> None:
    """A caller that handles signals can end all work. Work that waits does not begin."""
    calls = itertools.count()
    outcomes = list(isolated_all([sleep_inside_a_library] * 3, Limits(), 2, lambda: next(calls) > 1))
    assert [str(outcome) for outcome in outcomes] == ["was ended"] * 3


def test_work_that_waits_for_what_never_comes_is_stopped(snapshot: SnapshotAssertion) -> None:
    """Such work uses no processor time, and no signal handler of Python can interrupt it.

    It is stopped all the same.
    """
    with pytest.raises(Stopped) as stopped:
        isolated(sleep_inside_a_library, replace(LIMITS, elapsed=1.0))
    assert str(stopped.value) == snapshot


def test_a_busy_machine_stops_no_work() -> None:
    """Only processor time counts against the limit, so work on a busy machine may take long."""

    def work() -> bytes:
        time.sleep(3 * LIMITS.seconds)
        return b"done"

    assert isolated(work, LIMITS) == b"done"


class Waiting:
    """Garbage whose finalizer needs a thread of the process that made it, like objects of wgpu."""

    def __init__(self) -> None:
        self.itself = self
        self.maker = os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.maker:
            sleep_inside_a_library()


def test_work_does_not_finalize_the_garbage_of_its_caller() -> None:
    """The garbage of the caller is not finalized, because that would wait for ever."""
    gc.disable()
    try:
        Waiting()
        assert isolated(lambda: str(gc.collect()).encode(), LIMITS)
    finally:
        gc.enable()


def test_what_a_library_prints_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """The output of a library, such as a panic, does not reach the terminal."""

    def work() -> bytes:
        os.write(1, b"noise")
        os.write(2, b"noise")
        return b"done"

    assert isolated(work, LIMITS) == b"done"
    assert capfd.readouterr() == ("", "")


def test_works_run_side_by_side_and_answer_in_order() -> None:
    """Slow work runs beside quick work. Each failure belongs to its own work."""

    def work(number: int) -> Callable[[], bytes]:
        def run() -> bytes:
            if number % 5 == 0:
                time.sleep(0.3)
            if number % 7 == 0:
                crash()
            return str(number).encode()

        return run

    outcomes = list(isolated_all(map(work, range(40)), LIMITS, 4))
    texts = [outcome if isinstance(outcome, bytes) else str(outcome) for outcome in outcomes]
    assert texts == [b"%d" % number if number % 7 else "died of SIGSEGV" for number in range(40)]


def test_a_work_that_hangs_holds_up_no_other() -> None:
    """Each work has its own time limit. The others finish meanwhile."""
    works = [lambda: sum(iter(int, 1)).to_bytes(), *[lambda: b"done"] * 10]
    outcomes = list(isolated_all(works, LIMITS, 2))
    assert isinstance(outcomes[0], Stopped)
    assert outcomes[1:] == [b"done"] * 10


def test_a_caller_who_pauses_stops_no_work() -> None:
    """If the caller pauses, for example for a pager, answers are not read and fill their pipes. No work is stopped."""
    works = [lambda: b"x" * 200_000] * 3
    outcomes = isolated_all(works, replace(LIMITS, elapsed=2.0), 2)
    assert next(outcomes) == b"x" * 200_000
    time.sleep(2.5)
    assert list(outcomes) == [b"x" * 200_000] * 2


def test_what_one_work_leaves_behind_the_next_does_not_find() -> None:
    """Each work starts from the state of this process: memory, limits, modules and working folder."""
    here = os.getcwd()

    def spoil() -> bytes:
        os.chdir("/")
        sys.setrecursionlimit(50)
        sys.modules["json"] = None  # type: ignore[assignment]
        globals()["LIMITS"] = None
        return bytes(bytearray(200 << 20)[:1])

    def look() -> bytes:
        import json

        return json.dumps([os.getcwd(), sys.getrecursionlimit() > 50, LIMITS is not None]).encode()

    outcomes = list(isolated_all([spoil, look] * 5, LIMITS, 1))
    assert outcomes[1::2] == [f'["{here}", true, true]'.encode()] * 5


def test_who_stops_listening_leaves_no_process() -> None:
    """No process is left if the caller stops reading, however many were started."""
    before = set(psutil.Process().children())
    works: list[Callable[[], bytes]] = [lambda: b"first", *[sleep_inside_a_library] * 3]
    outcomes = isolated_all(works, LIMITS, 4)
    assert next(outcomes) == b"first"
    outcomes.close()
    assert set(psutil.Process().children()) == before


def test_a_work_that_closes_its_pipe_and_goes_on_is_ended(snapshot: SnapshotAssertion) -> None:
    """An answer counts only if its process then ends with status 0. A process that continues is ended."""

    def work() -> bytes:
        os.closerange(3, 256)
        time.sleep(1000)
        return b""

    with pytest.raises(Stopped) as stopped:
        isolated(work, LIMITS)
    assert str(stopped.value) == snapshot


def test_a_work_has_the_limits_of_its_process() -> None:
    """CPU time is limited by a timer and, five seconds later, by the kernel.

    There is no core file. Memory is limited to what the caller has and the work's own share. No handler of the caller
    keeps a limit from ending the work.
    """
    numbers = (signal.SIGPROF, signal.SIGXCPU)

    def work() -> bytes:
        rlimits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in ("CPU", "CORE", "AS")}
        timer = signal.getitimer(signal.ITIMER_PROF)[0]
        handlers = [signal.getsignal(number) is signal.SIG_DFL for number in numbers]
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        return json.dumps([rlimits, timer, handlers, size]).encode()

    limits = replace(LIMITS, seconds=7.25)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        told, timer, handlers, size = json.loads(isolated(work, limits))
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    assert (told["CPU"], told["CORE"]) == ([13, resource.getrlimit(resource.RLIMIT_CPU)[1]], [0, 0])
    assert 6 < timer < 7.3
    assert handlers == [True, True]
    assert abs(told["AS"][0] - limits.memory_bytes - size) < 64 << 20


@pytest.mark.parametrize(("hard", "expected"), [(resource.RLIM_INFINITY, 7), (5, 5), (9, 7)])
def test_no_limit_is_above_that_of_the_machine(monkeypatch: pytest.MonkeyPatch, hard: int, expected: int) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(limited_process.resource, "getrlimit", lambda kind: (1, hard))
    monkeypatch.setattr(limited_process.resource, "setrlimit", lambda kind, pair: limits.append(pair))
    limited_process._limit(resource.RLIMIT_CPU, 7)
    assert limits == [(expected, hard)]


def test_few_works_are_started_ahead_of_the_first_answer() -> None:
    """Few works start before the first answer is read, because later answers stay in memory."""
    begun = []
    reading, writing = os.pipe()

    def works() -> Iterator[Callable[[], bytes]]:
        for number in range(60):
            begun.append(number)
            if number == 14:
                os.write(writing, b"x")
            yield lambda: b""

    def first() -> bytes:
        os.read(reading, 1)
        return b"first"

    outcomes = isolated_all(itertools.chain([first], works()), LIMITS, 2)
    assert next(outcomes) == b"first"
    assert len(begun) == 15  # and the first
    assert sum(1 for _ in outcomes) == 60
    os.close(reading)
    os.close(writing)


def test_no_fork_collects_before_it_freezes() -> None:
    """A fork disables the collector at once.

    A finalizer of the caller's garbage could wait for a thread that no fork has.
    """
    caller, threshold = os.getpid(), gc.get_threshold()

    def look(phase: str, info: dict[str, int]) -> None:
        if os.getpid() != caller:
            gc.set_threshold(*threshold)  # the first collection shows it; counting a large process's objects takes long
            if not gc.get_freeze_count():
                os._exit(9)

    gc.callbacks.append(look)
    gc.set_threshold(1)
    try:
        assert isolated(lambda: b"done", LIMITS) == b"done"
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(look)


def test_a_fork_that_fails_leaves_the_collector_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system allows no more processes, the collector is on again after the error."""

    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(BlockingIOError):
        isolated(lambda: b"", LIMITS)
    assert gc.isenabled()


@pytest.mark.parametrize("descendants", [False, True])
@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda: os._exit(0), id="exit status 0"),
        pytest.param(lambda: os.execv("/bin/true", ["true"]), id="another program"),
        pytest.param(lambda: os.kill(os.getpid(), signal.SIGKILL), id="killed"),
    ],
)
def test_an_end_without_an_answer_is_no_answer(work: Callable[[], bytes], descendants: bool) -> None:
    """A process that ends in good order has still said nothing."""
    with pytest.raises(Stopped):
        isolated(work, replace(LIMITS, descendants=descendants))


def sleeper(reported: int) -> None:
    """Leave a process in a session of its own, and report its id."""
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    os.write(reported, f"{child.pid}\n".encode())


def gone(pid: int) -> bool:
    """Whether a process ends while the test waits."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)
    return not psutil.pid_exists(pid)


@pytest.mark.parametrize("hangs", [False, True])
def test_descendants_end_with_the_work(hangs: bool) -> None:
    reading, writing = os.pipe()

    def work() -> bytes:
        sleeper(writing)
        time.sleep(600 if hangs else 0)
        return b"done"

    limits = Limits(elapsed=2.0, descendants=True)
    (outcome,) = isolated_all([work], limits, 1)
    assert (outcome == b"done") is not hangs
    assert gone(int(os.read(reading, 100)))


def test_descendants_end_when_the_caller_is_killed() -> None:
    reading, writing = os.pipe()
    caller = os.fork()
    if caller == 0:

        def work() -> bytes:
            sleeper(writing)
            os.write(writing, f"{os.getpid()}\n".encode())
            time.sleep(600)
            return b""

        isolated_all([work], Limits(descendants=True), 1).__next__()
        os._exit(0)
    output = b""
    while output.count(b"\n") < 2:
        output += os.read(reading, 100)
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    assert all(map(gone, map(int, output.split())))
