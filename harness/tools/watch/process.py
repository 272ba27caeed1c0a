"""The process of a job, started here or already running. It outlives its watcher."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from harness.execution.blame import DISK_FULL
from harness.machine.process_tree import started

if TYPE_CHECKING:
    import psutil

__all__ = ["OUTPUT", "JobProcess", "give_room_back", "keep_room", "outputs_of", "start"]

OUTPUT: Final = "output.log"
"""The file of a started job's stdout and stderr, in the folder of the watch."""
_STATUS: Final = "status"
_SCRIPT: Final = """
out=$1 status=$2
shift 2
trap : INT TERM HUP
read -r go || exit
"$@" >>"$out" 2>&1 </dev/null
printf %s $? >>"$status"
"""
"""A shell waits for the job, so that a restarted watcher can read the exit status. It writes to no pipe, because a
broken pipe would end the job when the watcher ends. It starts the job after the watcher has recorded its pid. If the
watcher is killed before that, end-of-file on stdin ends the shell, so no unrecorded job runs."""
_ROOM: Final = 64 << 20
"""Bytes reserved for future output."""
_PAGE: Final = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h
_POLL: Final = 0.05


def start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], record: Callable[[JobProcess], None]
) -> JobProcess:
    """Start a command in a new session. Its output goes to OUTPUT in the folder.

    Args:
        record: stores the process. The command starts when it returns.

    Raises:
        OSError: the shell cannot be started, or its output would soon fill the disk.
    """
    if (free := shutil.disk_usage(folder).free) < _ROOM:
        raise OSError(f"{folder} has {free >> 20} MiB left for the output of the job; name another one by --state")
    words = ["/bin/sh", "-c", _SCRIPT, "harness-watch", str(folder / OUTPUT), str(folder / _STATUS), *command]
    for path, room in ((folder / _STATUS, _PAGE), (folder / OUTPUT, _ROOM)):
        path.touch()
        keep_room(path, 0, room)
    shell = subprocess.Popen(words, stdin=subprocess.PIPE, env={**os.environ, **environment}, start_new_session=True)
    assert shell.stdin is not None
    with shell.stdin:
        process = JobProcess(shell.pid, started(shell.pid), folder, is_ours=True)
        record(process)
        shell.stdin.write(b"go\n")
    return process


def keep_room(output: Path, read: int, room: int = _ROOM) -> str:
    """Reserve disk space for future output, because a trainer that cannot print ends. Returns the problem; empty
    without one.

    If the reserve is nearly used up, the blocks of output that was read are freed, and read as zeros afterwards.

    Args:
        read: bytes of the output that have been read.
        room: bytes to reserve.
    """
    try:
        with output.open("rb+") as file:
            status = os.fstat(file.fileno())
            size, given_back = status.st_size, 0
            if _allocated(file.fileno(), _KEEP_SIZE, size, room):
                return ""
            if status.st_blocks * 512 - size < room >> 2:  # little of the reserve remains
                given_back = max(read // _PAGE - 1, 0) * _PAGE
                _allocated(file.fileno(), _KEEP_SIZE | _PUNCH_HOLE, 0, given_back)
            any(_allocated(file.fileno(), _KEEP_SIZE, size, less) for less in (room >> 2, room >> 4))
    except FileNotFoundError:  # the file was deleted
        return ""
    lost = "; its beginning is given back to the disk" if given_back else ""
    return f"the disk of {output.parent} is full, and {output.name} may not grow for long{lost}"


def give_room_back(output: Path) -> None:
    """Free the space that is reserved beyond the end of the output."""
    with contextlib.suppress(OSError):
        os.truncate(output, output.stat().st_size)


def _allocated(descriptor: int, mode: int, offset: int, size: int) -> bool:
    """Reserve or free bytes of a file. Returns true on success, and if the file system does not support it."""
    call = ctypes.CDLL(None, use_errno=True).fallocate64
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return call(descriptor, mode, offset, size) == 0 or ctypes.get_errno() not in DISK_FULL


def outputs_of(pid: int) -> list[Path]:
    """Return the files that a process prints into, by their paths here.

    Files opened for appending are skipped, because they may contain an earlier run.
    """
    found: dict[Path, None] = {}
    for number in (1, 2):
        with contextlib.suppress(OSError, ValueError):
            opened = Path(f"/proc/{pid}/fd/{number}")
            path, about = opened.readlink(), Path(f"/proc/{pid}/fdinfo/{number}").read_text().split()
            appends = int(about[about.index("flags:") + 1], 8) & os.O_APPEND
            if path.is_file() and path.samefile(opened) and not appends:  # not another file, as in a container
                found[path] = None
    return [*found]


@final
class JobProcess:
    """A watched process and its descendants."""

    def __init__(self, pid: int, started_at: int | None, folder: Path, *, is_ours: bool) -> None:
        """Args:
        started_at: when it started, in clock ticks since boot. Together with the pid, it identifies the process.
        is_ours: whether `start` started it. Then `pid` is that of the shell.
        """
        self.pid, self.started_at, self.is_ours = pid, started_at, is_ours
        self._folder = folder

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        with contextlib.suppress(OSError):  # reaps our own child
            os.waitpid(self.pid, os.WNOHANG)
        found = started(self.pid)
        return found is not None and self.started_at in (None, found)

    @property
    def status(self) -> int | None:
        """The exit status after its end, as a shell gives it: 128 and more for a signal. None if it is not known."""
        try:
            return int((self._folder / _STATUS).read_text())
        except (OSError, ValueError):
            return None

    @property
    def output(self) -> Path | None:
        """The file of its output; None if it was not started here."""
        return self._folder / OUTPUT if self.is_ours else None

    def end(self, number: int) -> int:
        """Send a signal to the job:

        SIGKILL to all its processes, any other to the first process only, so that the trainer can stop its workers and
        save. Returns how many processes got it.
        """
        roots = self._members()
        chosen = roots if number == signal.SIGKILL else roots[:1]
        count = 0
        for process in chosen:
            with contextlib.suppress(Exception):  # it has already ended
                process.send_signal(number)
                count += 1
        return count

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the end of the job. Returns whether it has ended."""
        until = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL)
        return True

    def _members(self) -> list[psutil.Process]:
        """Return the job's processes without the shell around it, the first one first."""
        import psutil

        if not self.is_alive:
            return []
        try:
            root = psutil.Process(self.pid)
            children = root.children(recursive=True)
        except psutil.Error:
            return []
        return children if self.is_ours else [root, *children]
