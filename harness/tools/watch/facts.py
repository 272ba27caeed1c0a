"""The facts of a watched job: a file of JSON lines that only grows.

    with FactFile(folder / FACTS) as facts:
        for fact in facts.earlier: ...     # those of an earlier watcher of the same job
        facts.append({"fact": "usage", "at": 12.5, "rss_bytes": 1 << 30})

Each fact is one write of one line, so a killed watcher leaves at most a partial line at the end, which the next watcher
removes. The state of a watcher is a function of the facts in order, so it can be restarted at any time.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, final

from harness.base import strictjson
from harness.machine.cache_folder import NoCacheFolderError, made_cache_folder

__all__ = ["FACTS", "Fact", "FactFile", "WatchedAlready", "facts_in", "new_state", "states_folder"]

FACTS: Final = "facts.jsonl"
"""The name of the file in the folder of a watch."""

Fact = Mapping[str, Any]
"""`fact` is its kind, `at` the second of the job. Other keys depend on the kind (`harness.tools.watch.job_state`)."""


class WatchedAlready(RuntimeError):
    """Another watcher holds the facts of this job."""


@final
class FactFile:
    """Appends facts. Only one process can hold the file."""

    def __init__(self, path: Path) -> None:
        """Open the file, and remove a half line at its end.

        Raises:
            WatchedAlready: another process holds it.
            OSError: it cannot be read or written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            raise WatchedAlready(f"another watcher holds {path}") from error
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            os.ftruncate(self._descriptor, whole)
        self.earlier: tuple[Fact, ...] = tuple(_parsed(content[:whole]))

    def __enter__(self) -> FactFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)

    def append(self, fact: Fact) -> Fact:
        """Write a fact, and return it as a reader of the file gets it."""
        line = (json.dumps(strictjson.tag_nonfinite(dict(fact)), separators=(",", ":")) + "\n").encode()
        written = os.write(self._descriptor, line)
        if written != len(line):  # the disk is full: a partial line would corrupt the next fact
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise OSError(f"{self.path} takes no more facts: the disk is full")
        return fact


def states_folder() -> Path:
    """Return the folder with the facts of all watched jobs of this user. Raises NoCacheFolderError."""
    return made_cache_folder() / "watch"


def new_state(name: str, elsewhere: Path | None = None) -> Path:
    """Return a new folder for the facts of a job, or the folder `elsewhere`, which is added to this user's list."""
    stamp = f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}-{secrets.token_hex(3)}"
    named = f"{stamp}-{''.join(letter if letter.isalnum() else '-' for letter in name)[:40]}"
    if elsewhere is None:
        return states_folder() / named
    with suppress(OSError, NoCacheFolderError):
        states_folder().mkdir(exist_ok=True)
        (states_folder() / named).symlink_to(elsewhere.absolute())
    return elsewhere


def facts_in(path: Path) -> tuple[Fact, ...]:
    """Return the complete facts of a file, to which a watcher may append meanwhile. Raises OSError if it cannot be
    read."""
    content = path.read_bytes()
    return tuple(_parsed(content[: content.rfind(b"\n") + 1]))


def _parsed(content: bytes) -> Iterator[Fact]:
    for line in content.splitlines():
        fact = strictjson.untag_nonfinite(json.loads(line))
        if isinstance(fact, dict):
            yield fact
