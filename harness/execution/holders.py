"""The holders of a lease: small JSON files beside the lock, for messages. The lock alone decides what may run."""

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

from harness.base import strictjson
from harness.base.beneath import Beneath
from harness.machine.process_tree import started

__all__ = ["Holder", "list_holders", "recorded"]

_SUFFIX = ".holder.json"
_LARGEST = 4096
"""Bytes of such a file that are read, because every user can write one."""


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
    memory_gib: float = 0.0
    """The most memory of the device that it uses."""

    def __str__(self) -> str:
        since = "" if self.since is None else time.strftime(", since %Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{self.text} (pid {self.pid}, {self.user}, {self.mode}{since})"

    @classmethod
    def of_process(cls, pid: int, memory_gib: float) -> Holder:
        """Describe a process that uses a device without a lease. One in another PID namespace cannot be described."""
        import psutil

        try:
            process = psutil.Process(pid)
            with process.oneshot():
                name, user, since = _plain(process.name()), process.username(), process.create_time()
            return cls(name, "without a lease", pid, user, since, memory_gib)
        except psutil.Error:
            return cls("a process that cannot be seen from here", "without a lease", pid, "unknown user", None)


@contextlib.contextmanager
def recorded(folder: Path, text: str, mode: str, memory_gib: float = 0.0) -> Iterator[None]:
    """Name the holder of a lease during a `with` block. If the file cannot be written, the lease has no name."""
    pid = os.getpid()
    holder = Holder(_plain(text), mode, pid, _user(), time.time(), memory_gib)
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
    """The holders that are alive, the longest-waiting first. Files of ended processes are removed.

    A process has ended if its id is unused, or belongs to a process with another start time.
    """
    holders = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with Beneath(folder, path.name).opened() as file:  # every user can put a pipe or a link here
                record = strictjson.loads(file.read(_LARGEST))
            holder = Holder(
                _plain(record["text"]), _plain(record["mode"]), int(record["pid"]), _plain(record["user"]),
                float(record["since"]), float(record.get("memory_gib", 0.0)),
            )  # fmt: skip
            if (now := started(holder.pid)) is None or now != record["started"]:
                path.unlink()  # a sticky folder refuses if it is another user's; this is harmless
            else:
                holders.append(holder)
    return tuple(sorted(holders, key=lambda holder: holder.since or 0.0))


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return f"uid {os.getuid()}"


def _plain(text: object) -> str:
    """A text of another user, without line breaks and control characters, for a terminal."""
    return "".join(character for character in str(text)[:200] if character.isprintable())
