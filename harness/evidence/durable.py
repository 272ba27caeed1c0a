"""Writing that survives a crash: synced files, and folders that are renamed into place once they are whole.

While a bundle is written, its folder has another name:

    .unfinished-<run>~<process>-<its start>-<where>     becomes <run> by one rename

The folder's name has its writer, so a folder whose writer died is recognized at any moment.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.evidence.bundle_layout import UNFINISHED
from harness.machine.process_tree import started

__all__ = [
    "remove_stale",
    "sync_folder",
    "sync_tree",
    "unfinished",
    "write_new",
]


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet, making the folders above it. It is on the disk only after `sync_tree`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(content)


def sync_tree(folder: Path) -> None:
    """Bring every file and folder below, and the folder itself, to the disk.

    All files are written before the first is synced: one journal commit then serves most of them. An error of writing
    back that the kernel met before this is reported here, once for each file, which is why none is left out.
    """
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(Path(parent, name), os.O_RDONLY)
        sync_folder(Path(parent))


def sync_folder(folder: Path) -> None:
    """Bring a folder's own entries to the disk: which names it has."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


UNKNOWN_SECONDS = 3600.0
"""How old a folder must be to count as left behind where its writer cannot be asked about: sealing takes seconds."""
_NAME = re.compile(re.escape(UNFINISHED) + r".+~(?P<pid>[0-9]{1,10})-(?P<started>[0-9]{1,20})-(?P<where>[0-9a-f]{8})")


@contextmanager
def unfinished(place: Path) -> Iterator[Path]:
    """A folder to write a bundle into; on leaving the block it is at `place`, whole, or gone.

    Raises:
        OSError: it cannot be written, or `place` exists already.
    """
    if os.path.lexists(place):
        raise FileExistsError(errno.EEXIST, "exists already", str(place))
    pid = os.getpid()
    folder = place.with_name(f"{UNFINISHED}{place.name}~{pid}-{started(pid) or 0}-{_where()}")
    folder.mkdir()
    try:
        yield folder
        folder.rename(place)  # refused where there is a folder by now that holds anything
        sync_folder(place.parent)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def remove_stale(claim: Path) -> None:
    """Remove what dead writers left in a claim's folder; whatever cannot be removed stays, and is no bundle either."""
    with suppress(OSError), os.scandir(claim) as entries:
        for entry in list(entries):
            if entry.name.startswith(UNFINISHED) and entry.is_dir(follow_symlinks=False) and _is_stale(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_stale(entry: os.DirEntry[str]) -> bool:
    writer = _NAME.fullmatch(entry.name)
    if writer is not None and writer["where"] == _where():
        return started(int(writer["pid"])) != int(writer["started"])
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > UNKNOWN_SECONDS


def _where() -> str:
    """Where a process id has its meaning, in eight digits: the machine, its boot, and the PID namespace."""
    parts = [platform.node()]
    with suppress(OSError):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:8]
