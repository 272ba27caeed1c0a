"""The pipes between the harness and a trial."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["trial_pipes"]

_PIPE_BYTES: Final = 1 << 20
"""Size of a pipe that the trial writes to."""


@contextmanager
def trial_pipes(keys: Iterable[bytes]) -> Iterator[tuple[list[int], list[int]]]:
    """Create the pipes of a trial: stdout, stderr, messages and control.

    Yields the harness's ends and the trial's ends. The caller closes the trial's ends after the fork, and clears the
    list.

    Args:
        keys: for each key, the trial's ends contain one more pipe, with the key written to it.
    """
    own_ends: list[int] = []
    trial_ends: list[int] = []
    try:
        for _ in range(3):
            reading, writing = os.pipe()
            own_ends.append(reading)
            trial_ends.append(writing)
            with suppress(OSError):  # above the user's pipe quota, the default size is enough
                fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        reading, writing = os.pipe()
        own_ends.append(writing)
        trial_ends.append(reading)
        for key in keys:
            reading, writing = os.pipe()
            trial_ends.append(reading)
            with open(writing, "wb") as pipe:
                pipe.write(key)
        yield own_ends, trial_ends
    finally:
        for descriptor in (*own_ends, *trial_ends):
            os.close(descriptor)
