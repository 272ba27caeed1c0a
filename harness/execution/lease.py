"""Leases of devices. A claim that measures time has an exclusive lease; others have shared leases.

    with lease(gpu, mode="exclusive", holder="F-BLACKWELL-CUBLAS-001", wait_seconds=600):
        …

Leases work across the processes and users of one machine. A lease is a small JSON file in the device's folder. Its
process locks the file (flock) while it waits for or holds the device, so a lease ends when its process ends. Unlocked
files are removed. The folder is locked while a process reads or changes the leases.

Leases form a queue. A lease waits for all holders and earlier waiters that conflict with it: two leases conflict if
one of them is exclusive. So shared leases cannot starve an exclusive one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, final

from harness.base import strictjson
from harness.base.beneath import Beneath
from harness.base.json_dataclass import JsonDataclass
from harness.base.shortening import cut, printable
from harness.machine import nvml

if TYPE_CHECKING:
    from harness.machine.host import Gpu

__all__ = [
    "CPU",
    "Holder",
    "LeaseUnavailable",
    "Memory",
    "WaitInterrupted",
    "default_directory",
    "lease",
    "list_holders",
    "named",
    "other_processes",
]

CPU = "cpu"
"""The CPU as a device, for claims that measure time and need no GPU."""

Mode = Literal["shared", "exclusive"]
_SLICE_SECONDS = 0.2
"""Seconds between two reads of the leases."""
_LINGER_SECONDS = 0.4
"""Seconds for which NVML may list a process after its end. On an H200 (driver 580) it was 0.13 s."""
_SUFFIX = ".holder.json"
_LARGEST = 4096
"""Maximum bytes to read of a lease's file, because every user can write one."""


@final
@dataclass(frozen=True, slots=True)
class Holder(JsonDataclass):
    """A process that holds a device, or waits for it."""

    text: str
    """The claim, or the command of a process without a lease."""
    mode: str
    """"shared", "exclusive", or "without a lease"."""
    pid: int
    user: str
    since: float | None
    """Seconds since the epoch."""
    memory_gib: float = 0.0
    """Maximum device memory that it uses."""
    waits: bool = False

    def __str__(self) -> str:
        since = "" if self.since is None else time.strftime(", since %Y-%m-%d %H:%M:%S", time.localtime(self.since))
        waits = ", waiting" if self.waits else ""
        text, user, mode = (printable(cut(name, 200)) for name in (self.text, self.user, self.mode))
        return f"{text} (pid {self.pid}, {user}, {mode}{waits}{since})"

    @property
    def turn(self) -> tuple[float, int]:
        """The sort key of the queue."""
        return self.since or 0.0, self.pid

    @classmethod
    def of_process(cls, pid: int, memory_gib: float) -> Holder:
        """Describe a process that uses a device without a lease. In another PID namespace, only the pid is known."""
        import psutil

        try:
            process = psutil.Process(pid)
            with process.oneshot():
                name, user, since = process.name(), process.username(), process.create_time()
            return cls(name, "without a lease", pid, user, since, memory_gib)
        except psutil.Error:
            return cls("a process that cannot be seen from here", "without a lease", pid, "unknown user", None)


class LeaseUnavailable(TimeoutError):
    """The device was not free in time, or leases cannot be stored. The message names the holders or the remedy."""

    def __init__(self, text: str, holders: tuple[Holder, ...] = ()) -> None:
        super().__init__(text)
        self.holders = holders


class WaitInterrupted(KeyboardInterrupt):
    """The wait was interrupted. `holders` describes the holders of the device."""

    def __init__(self, holders: str) -> None:
        super().__init__(f"interrupted while waiting for {holders}")
        self.holders = holders


@final
@dataclass(frozen=True, slots=True)
class Memory:
    """Device memory in GiB: that of one holder, and the limit for all holders together."""

    gib: float
    room_gib: float


_UNSTATED = Memory(0.0, 0.0)


def default_directory() -> Path:
    """Return the folder of leases: $HARNESS_LEASE_DIR, or a folder in /tmp that all users share.

    $TMPDIR is not used, because it differs between users and jobs.
    """
    return Path(os.environ.get("HARNESS_LEASE_DIR") or "/tmp/falsifier-harness-leases")  # noqa: S108


@contextlib.contextmanager
def lease(
    device: Gpu | str,
    *,
    mode: Mode,
    holder: str,
    wait_seconds: float,
    directory: Path | None = None,
    memory: Memory = _UNSTATED,
    on_wait: Callable[[tuple[Holder, ...]], None] = lambda holders: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[float]:
    """Hold a device during a `with` block. Yields the seconds of the wait for it.

    Threads take leases as processes do. Do not take a second lease of a device inside the first.

    Args:
        device: the GPU, or a key such as CPU. An exclusive lease of a `Gpu` also waits for processes without a lease
            that NVML lists on it.
        mode: "shared" or "exclusive".
        holder: the name that waiting processes see, such as the claim's id; process id and user are added.
        wait_seconds: how long to wait; 0 tries once.
        directory: the folder of leases; by default, `default_directory()`.
        memory: the holder's memory. The lease also waits until the other holders leave that much. The first holder
            always gets its memory.
        on_wait: called with the holders when a wait begins, and whenever they change.
        interrupted: polled five times a second during the wait; true ends the wait.

    Raises:
        LeaseUnavailable: `wait_seconds` is over, or the directory cannot hold leases.
        WaitInterrupted: `interrupted` returned true.
    """
    key = _key(device)
    folder = _folder(directory or default_directory(), key)
    wait = _Wait(key, wait_seconds, on_wait, interrupted)
    with _Entry(folder, holder, mode, memory) as entry:
        while in_the_way := entry.hold():
            time.sleep(wait.pause(in_the_way))
        if mode == "exclusive" and not isinstance(device, str):
            if other_processes(device, folder.parent):
                time.sleep(_LINGER_SECONDS)
            while others := other_processes(device, folder.parent):
                time.sleep(wait.pause(others))
        yield round(wait.waited, 3)


@dataclass
class _Wait:
    """One wait for one device, with its deadline."""

    key: str
    seconds: float
    on_wait: Callable[[tuple[Holder, ...]], None]
    interrupted: Callable[[], bool]
    start: float = field(default_factory=time.monotonic)
    reported: tuple[Holder, ...] = ()

    @property
    def waited(self) -> float:
        return time.monotonic() - self.start

    def pause(self, holders: tuple[Holder, ...]) -> float:
        """Report the wait, and return the seconds until the next attempt."""
        left = self.seconds - self.waited
        if left <= 0:
            who = "; ".join(named(holders))
            raise LeaseUnavailable(f"{self.key} was not free within {self.seconds:g} s; held by {who}", holders)
        if self.interrupted():
            raise WaitInterrupted("; ".join(named(holders)))
        if holders != self.reported:
            self.reported = holders
            self.on_wait(holders)
        return min(_SLICE_SECONDS, left)


class _Entry:
    """A lease in the queue of a device, for the duration of a `with` block."""

    def __init__(self, folder: Path, text: str, mode: Mode, memory: Memory) -> None:
        self._folder, self._room_gib = folder, memory.room_gib
        pid = os.getpid()
        self._path = folder / f"{pid}-{threading.get_ident()}-{time.monotonic_ns()}{_SUFFIX}"
        self._holder = Holder(text, mode, pid, _user(), time.time(), memory.gib, waits=True)
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _Entry:
        try:
            with _locked(self._folder):
                self._write()
        except OSError as error:  # such as a full disk
            raise _unusable(self._folder, error) from error
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()
        if self._file is not None:
            self._file.close()

    def hold(self) -> tuple[Holder, ...]:
        """Hold the device if no other lease conflicts. Returns the conflicting leases."""
        try:
            with _locked(self._folder):
                others = [holder for path, holder in _living(self._folder) if path != self._path]
                if in_the_way := self._in_the_way(others):
                    return in_the_way
                self._holder = replace(self._holder, waits=False)
                self._write()
                return ()
        except OSError as error:
            raise _unusable(self._folder, error) from error

    def _in_the_way(self, others: list[Holder]) -> tuple[Holder, ...]:
        own = self._holder
        before = [other for other in others if not other.waits or other.turn < own.turn]
        if rivals := tuple(other for other in before if "exclusive" in (own.mode, other.mode)):
            return rivals
        using = tuple(other for other in before if not other.waits and other.memory_gib > 0)
        used = sum(other.memory_gib for other in using)
        return using if own.memory_gib > 0 and used + own.memory_gib > self._room_gib else ()

    def _write(self) -> None:
        """Create the locked file. It is renamed into the folder, so it is never visible without its lock."""
        beside = self._path.with_suffix(".part")
        file = beside.open("xb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(json.dumps(self._holder.to_json()).encode())
            file.flush()
            beside.chmod(0o644)
            beside.rename(self._path)
        except BaseException:
            file.close()
            beside.unlink(missing_ok=True)
            raise
        if self._file is not None:
            self._file.close()
        self._file = file


def list_holders(folder: Path) -> tuple[Holder, ...]:
    """Return the leases in the folder of a device, oldest first."""
    with _locked(folder):
        return tuple(sorted((holder for _, holder in _living(folder)), key=lambda holder: holder.turn))


def _living(folder: Path) -> Iterator[tuple[Path, Holder]]:
    """Yield the leases of running processes with their files. Unlocked files are removed."""
    for path in folder.glob(f"*{_SUFFIX}"):
        # Any user can create a pipe, a link or an invalid file here.
        with contextlib.suppress(OSError, ValueError), Beneath(folder, path.name).opened() as file:
            holder = Holder.from_json(strictjson.loads(file.read(_LARGEST)))
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                yield path, holder
            else:
                path.unlink()  # a sticky folder refuses if it is another user's; this is harmless


def named(holders: tuple[Holder, ...]) -> tuple[str, ...]:
    """Return the holders as text."""
    return tuple(map(str, holders))


def other_processes(gpu: Gpu, directory: Path | None = None) -> tuple[Holder, ...]:
    """Return the processes on the GPU with their memory, without this process, holders of leases, and their children.

    Args:
        directory: the folder of leases; by default, `default_directory()`.
    """
    import psutil

    listed = nvml.Device(gpu.uuid).processes().value or ()
    used = {process.pid: (process.memory_bytes or 0) / 2**30 for process in listed}
    if not used:
        return ()
    harness_pids: set[int] = set()
    folder = _folder(directory or default_directory(), _key(gpu))
    for pid in {os.getpid(), *(holder.pid for holder in list_holders(folder))}:
        with contextlib.suppress(psutil.Error):
            harness_pids |= {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    return tuple(Holder.of_process(pid, used[pid]) for pid in sorted(used.keys() - harness_pids))


def _key(device: Gpu | str) -> str:
    return device if isinstance(device, str) else device.uuid or f"gpu-{device.index}"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder for the block, so that only one process reads and changes its leases."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _folder(directory: Path, key: str) -> Path:
    """Return the folder of one device's leases. Every user can add a lease, but cannot remove another's."""
    folder = directory / (re.sub(r"[^A-Za-z0-9._-]", "_", key).lstrip(".") or "_")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        for place in (directory, folder):
            _appear(place)
    except OSError as error:
        raise _unusable(directory, error) from error
    return folder


def _appear(place: Path) -> None:
    """Create a sticky folder that all users can write, unless it exists.

    It is created under another name and renamed, so it is never visible with other permissions.
    """
    if place.is_symlink() and place.parent.stat().st_mode & 0o002:
        raise OSError(errno.ELOOP, f"{place} is a symbolic link in a folder that every user can write to")
    if place.is_dir():
        return
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    new.chmod(0o1777)
    try:
        new.rename(place)
    except OSError:
        new.rmdir()
        if not place.is_dir():
            raise


def _unusable(folder: Path, error: OSError) -> LeaseUnavailable:
    return LeaseUnavailable(
        f"leases cannot be kept in {folder}: {error.strerror or error}; "
        "set HARNESS_LEASE_DIR to a local folder that every user of this machine can write"
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return f"uid {os.getuid()}"
