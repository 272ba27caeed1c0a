"""The limits of one reading."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

__all__ = ["TooSlow", "bounded"]


class TooSlow(BaseException):
    """The block took more processor time than its limit. No reader catches this."""


@contextlib.contextmanager
def bounded(seconds: float = 5.0, mebibytes: int = 256) -> Iterator[None]:
    """Limit the processor time of the block, and the address space that it may use in addition to the present one.

    Raises:
        TooSlow: the time is over. Waiting costs none; pytest ends a test that waits for ever.
        MemoryError: an allocation fails, unless the block has a documented error for it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, _over)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (mebibytes << 20), hard))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, handler)


def _over(number: int, frame: FrameType | None) -> NoReturn:
    raise TooSlow


def _address_space() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
