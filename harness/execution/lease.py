"""A lease of one device. A claim that measures time has the device to itself; other claims share it.

    with lease(gpu, mode="exclusive", holder="F-BLACKWELL-CUBLAS-001", wait_seconds=600):
        …

Leases work between processes and users of one machine. A lease ends when its process ends. The lock is filelock's
ReadWriteLock. It has no priorities, so a stream of shared leases could block an exclusive one for ever. Therefore every
lease passes through a gate, and an exclusive lease holds the gate while it waits.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

from harness.execution.holders import Holder, list_holders, recorded
from harness.machine import nvml

if TYPE_CHECKING:
    from filelock import ReadWriteLock

    from harness.machine.host import Gpu

__all__ = [
    "CPU",
    "Holder",
    "Lease",
    "LeaseUnavailable",
    "Memory",
    "WaitInterrupted",
    "default_directory",
    "lease",
    "named",
    "other_processes",
]

CPU = "cpu"
"""The key of the CPU, for claims that measure time and need no GPU."""

Mode = Literal["shared", "exclusive"]
_SLICE_SECONDS = 0.5
"""Seconds of one attempt, before the holders are listed again."""
_LINGER_SECONDS = 0.4
"""Seconds that NVML may still list a process that has ended. On an H200 (driver 580) it was 0.13 s."""


class LeaseUnavailable(TimeoutError):
    """The device was not free in time, or leases cannot be stored here. The message names the holders or the remedy."""

    def __init__(self, text: str, holders: tuple[Holder, ...] = ()) -> None:
        super().__init__(text)
        self.holders = holders


class WaitInterrupted(KeyboardInterrupt):
    """The wait was interrupted. `holders` has the holders of the device, in words."""

    def __init__(self, holders: str) -> None:
        super().__init__(f"interrupted while waiting for {holders}")
        self.holders = holders


@final
@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a device, in GiB: the part of one holder, and the part that all holders may use together."""

    gib: float
    room_gib: float


NO_MEMORY = Memory(0.0, 0.0)
"""The memory of a holder that does not state any."""


@final
@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that this process holds."""

    key: str
    mode: Mode
    waited_seconds: float


def default_directory() -> Path:
    """The folder of leases: $HARNESS_LEASE_DIR, or a folder of /tmp that all users of the machine share.

    Not $TMPDIR, which differs between users and jobs.
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
    memory: Memory = NO_MEMORY,
    on_wait: Callable[[tuple[Holder, ...]], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Lease]:
    """Hold a device during a `with` block.

    Threads of one process take leases like processes do. Do not take a second lease of a device inside the first.

    Args:
        device: the GPU, or a key such as CPU. An exclusive lease of a `Gpu` also waits for processes that run on it
            without a lease, as far as NVML lists them.
        mode: "shared" with other shared leases, or "exclusive".
        holder: the name that waiting processes see, such as the claim's id; process id and user are added.
        wait_seconds: how long to wait; 0 tries once.
        directory: the folder of leases; by default, the shared one.
        memory: the memory that the holder will use. The lease also waits until the other holders leave that much.
        on_wait: called when a wait begins, and whenever the holders change.
        interrupted: called twice a second during the wait; true ends it. A signal handler should set a flag for it: an
            exception in a handler could interrupt SQLite or filelock in the middle of their work.

    Raises:
        LeaseUnavailable: the time is over, or the directory cannot hold leases.
        WaitInterrupted: `interrupted` returned true.
    """
    key = _key(device)
    gpu = None if isinstance(device, str) else device
    folder = _folder(directory or default_directory(), key)
    wait = _Wait(key, folder, wait_seconds, on_wait, interrupted)
    with contextlib.ExitStack() as held, contextlib.ExitStack() as passing:
        gate, door = _lock(folder, "gate"), _lock(folder, "lock")
        held.callback(gate.close)
        held.callback(door.close)
        wait.acquire(gate, mode)
        passing.callback(gate.release)
        wait.acquire(door, mode)
        held.callback(door.release)
        wait.record(held, holder, mode, memory)
        if mode == "exclusive" and gpu is not None:
            wait.until_alone(gpu)
        passing.close()
        yield Lease(key, mode, round(wait.waited, 3))


@dataclass
class _Wait:
    """One wait for one device, over several locks, with one deadline."""

    _key: str
    _folder: Path
    _seconds: float
    _on_wait: Callable[[tuple[Holder, ...]], None] | None
    _interrupted: Callable[[], bool]
    _start: float = field(default_factory=time.monotonic)
    _told: tuple[Holder, ...] | None = None

    @property
    def waited(self) -> float:
        return time.monotonic() - self._start

    def acquire(self, lock: ReadWriteLock, mode: Mode) -> None:
        import sqlite3

        from filelock import Timeout

        acquire = lock.acquire_write if mode == "exclusive" else lock.acquire_read
        patience = 0.0
        while True:
            try:
                acquire(timeout=patience)
                return
            except Timeout:
                patience = self._pause(list_holders(self._folder))
            except (OSError, ValueError, sqlite3.Error) as error:  # a full disk, or a file there that is not a lock
                raise _unusable(self._folder, error) from error

    def record(self, held: contextlib.ExitStack, holder: str, mode: Mode, memory: Memory) -> None:
        """Register the holder once the others leave enough memory. The first holder always gets its memory."""
        while True:
            with _ledger(self._folder):
                others = (
                    [holder for holder in list_holders(self._folder) if holder.memory_gib > 0] if memory.gib > 0 else []
                )
                used = sum(holder.memory_gib for holder in others)
                if not others or used + memory.gib <= memory.room_gib:
                    held.enter_context(recorded(self._folder, holder, mode, memory.gib))
                    return
            time.sleep(self._pause(tuple(others)))

    def until_alone(self, gpu: Gpu) -> None:
        """Wait for processes that use the GPU without a lease. There is no wait if NVML cannot list them."""
        if other_processes(gpu, self._folder.parent):
            time.sleep(_LINGER_SECONDS)
        while others := other_processes(gpu, self._folder.parent):
            time.sleep(self._pause(others))

    def _pause(self, holders: tuple[Holder, ...]) -> float:
        """Report the wait, and return the seconds until the next attempt."""
        left = self._seconds - self.waited
        if left <= 0:
            who = "; ".join(named(holders))
            raise LeaseUnavailable(f"{self._key} was not free within {self._seconds:g} s; held by {who}", holders)
        if self._interrupted():
            raise WaitInterrupted("; ".join(named(holders)))
        if self._on_wait is not None and holders != self._told:
            self._told = holders
            self._on_wait(holders)
        return min(_SLICE_SECONDS, left)


def named(holders: tuple[Holder, ...]) -> tuple[str, ...]:
    """The holders in words. A holder without a file, such as one that still waits at the gate, has no name."""
    return tuple(map(str, holders)) or ("a holder that left no name",)


def other_processes(gpu: Gpu, directory: Path | None = None) -> tuple[Holder, ...]:
    """The processes on the GPU with their memory, except those of this process and of the holders of leases.

    Args:
        directory: the folder of leases; by default, the shared one.
    """
    import psutil

    session = nvml.connect()
    if isinstance(session, str):
        return ()
    handle = nvml.handle_of(session, gpu.uuid)
    listed = nvml.processes(session, handle.value) if handle.reason is None else handle
    used = {process.pid: (process.memory_bytes or 0) / 2**30 for process in listed.value or ()}
    if not used:
        return ()
    ours: set[int] = set()
    folder = _folder(directory or default_directory(), _key(gpu))
    for pid in {os.getpid(), *(holder.pid for holder in list_holders(folder))}:
        with contextlib.suppress(psutil.Error):
            ours |= {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    return tuple(Holder.of_process(pid, used[pid]) for pid in sorted(used.keys() - ours))


def _key(device: Gpu | str) -> str:
    return device if isinstance(device, str) else device.uuid or f"gpu-{device.index}"


@contextlib.contextmanager
def _ledger(folder: Path) -> Iterator[None]:
    """Lock the folder, so that one process at a time reads the holders and adds itself."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # it was removed: then there are no names either
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path, name: str) -> ReadWriteLock:
    # Imported late: SQLite and filelock would take a tenth of the time of `harness list`.
    import sqlite3

    from filelock import ReadWriteLock

    try:
        return ReadWriteLock(folder / f"{name}.db", is_singleton=False)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise _unusable(folder, error) from error


def _folder(directory: Path, key: str) -> Path:
    """The folder of one device's locks. Every user can open the locks, and none can remove another's.

    The locks must belong to the folder's owner. With fs.protected_regular, Linux refuses to open a file in a sticky
    folder for writing if it belongs neither to the user nor to the folder's owner.
    """
    folder = directory / (re.sub(r"[^A-Za-z0-9._-]", "_", key).lstrip(".") or "_")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        _appear(directory, ())
        _appear(folder, ("gate.db", "lock.db"))
    except OSError as error:
        raise _unusable(directory, error) from error
    return folder


def _appear(place: Path, files: tuple[str, ...]) -> None:
    """Make a sticky folder that all users can write, with empty files for all. Does nothing if it exists.

    It is made beside its place and renamed, so it is never visible half made. If two processes do this, the first wins.
    """
    if place.is_symlink() and place.parent.stat().st_mode & 0o002:
        raise OSError(errno.ELOOP, f"{place} is a symbolic link in a folder that every user can write to")
    if place.is_dir():
        return
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    for name in files:
        (new / name).touch()
        (new / name).chmod(0o666)
    new.chmod(0o1777)
    try:
        new.rename(place)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        if not place.is_dir():
            raise


def _unusable(folder: Path, error: Exception) -> LeaseUnavailable:
    return LeaseUnavailable(
        f"leases cannot be kept in {folder}: {getattr(error, 'strerror', None) or error}; "
        "set HARNESS_LEASE_DIR to a local folder that every user of this machine can write"
    )
