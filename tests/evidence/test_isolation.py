"""Work in a process of its own: whatever it does, the caller gets an answer or a reason, in time."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from harness.evidence.isolation import Limits, Stopped, isolated

LIMITS = Limits(seconds=2.0, memory_bytes=256 << 20, answer_bytes=1 << 20)


def test_the_answer_comes_back_whole() -> None:
    """More than a pipe holds at once."""
    assert isolated(lambda: b"x" * 1_000_000, LIMITS) == b"x" * 1_000_000


def crash() -> bytes:
    ctypes.string_at(0)
    return b""


def sleep_inside_a_library() -> bytes:
    """Where no exception and no signal handler of Python's gets a word in."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM})
    ctypes.PyDLL(None).sleep(60)  # with the interpreter's lock held
    return b""


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda: sum(iter(int, 1)), "did not end within 2 s"),
        (sleep_inside_a_library, "did not end within 2 s"),
        (crash, "died of SIGSEGV"),
        (lambda: os.abort(), "died of SIGABRT"),
        (lambda: os._exit(3), "ended without a word"),
        (lambda: sys.exit(0), "broke off with SystemExit"),
        (lambda: bytearray(1 << 30), "broke off with MemoryError"),
        (lambda: {}["key"], "broke off with KeyError"),
        (lambda: b"x" * (2 << 20), "more than 1048576 bytes to say"),
    ],
)
def test_work_that_fails_is_a_reason(work: Callable[[], bytes], says: str) -> None:
    """Each its own, and no process is left."""
    before = set(psutil.Process().children())
    started = time.monotonic()
    with pytest.raises(Stopped, match=says):
        isolated(work, LIMITS)
    assert time.monotonic() - started < 5
    assert set(psutil.Process().children()) == before


def test_what_a_library_prints_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """A panic is no business of the terminal."""

    def work() -> bytes:
        os.write(1, b"noise")
        os.write(2, b"noise")
        return b"done"

    assert isolated(work, LIMITS) == b"done"
    assert capfd.readouterr() == ("", "")
