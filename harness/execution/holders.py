"""Who holds a lease: small JSON files beside the lock, for people to read. The lock, not these, decides who may run."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from harness.machine.process_tree import started

__all__ = ["Holder", "list_holders", "recorded"]

_SUFFIX = ".holder.json"
_LARGEST = 4096
"""Bytes of such a file that are read: anybody can write one."""


@final
@dataclass(frozen=True, slots=True)
class Holder:
    """One process that holds a device."""

    text: str
    """The claim, or the command of a process that has no lease."""
    mode: str
    """"shared", "exclusive", or "without a lease"."""
    pid: int
    user: str
    since: float | None
    """Seconds since the epoch."""

    def __str__(self) -> str:
        since = "" if self.since is None else time.strftime(", since %Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{self.text} (pid {self.pid}, {self.user}, {self.mode}{since})"

    @classmethod
    def of_process(cls, pid: int) -> Holder:
        """Describe a process that uses a device without a lease; one in another PID namespace keeps its secrets."""
        import psutil

        try:
            process = psutil.Process(pid)
            with process.oneshot():
                return cls(_plain(process.name()), "without a lease", pid, process.username(), process.create_time())
        except psutil.Error:
            return cls("a process that cannot be seen from here", "without a lease", pid, "unknown user", None)


@contextlib.contextmanager
def recorded(folder: Path, text: str, mode: str) -> Iterator[None]:
    """Name the holder of a lease for the length of a `with` block; a folder that takes no file is no obstacle."""
    pid = os.getpid()
    holder = Holder(_plain(text), mode, pid, _user(), time.time())
    path = folder / f"{pid}-{threading.get_ident()}-{time.monotonic_ns()}{_SUFFIX}"
    temporary = path.with_suffix(".part")
    with contextlib.suppress(OSError):
        with temporary.open("x", encoding="utf-8") as file:
            json.dump({**asdict(holder), "started": started(pid)}, file)
        temporary.chmod(0o644)
        temporary.rename(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def list_holders(folder: Path) -> tuple[Holder, ...]:
    """The holders that are alive, those who waited longest first. Files that the dead left behind are removed.

    Dead is a process whose id is unused, or used by one that started at another time.
    """
    found = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(path, encoding="utf-8", opener=_cautiously) as file:
                record = json.loads(file.read(_LARGEST))
            holder = Holder(
                _plain(record["text"]), _plain(record["mode"]), int(record["pid"]), _plain(record["user"]),
                float(record["since"]),
            )  # fmt: skip
            if (now := started(holder.pid)) is None or now != record["started"]:
                path.unlink()  # refused by a sticky folder where it is another user's, which does no harm
            else:
                found.append(holder)
    return tuple(sorted(found, key=lambda holder: holder.since or 0.0))


def _cautiously(path: str, flags: int) -> int:
    # Anybody can put a pipe or a link here: the one would keep us waiting, the other lead us elsewhere.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have neither a name nor the variables that give one
        return f"uid {os.getuid()}"


def _plain(text: object) -> str:
    """Of a text that somebody else wrote: what a terminal can show on one line without being steered by it."""
    return "".join(character for character in str(text)[:200] if character.isprintable())
