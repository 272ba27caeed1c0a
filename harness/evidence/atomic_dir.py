"""Writing that survives a crash: files are synced, and a folder is renamed into place once it is complete.

While a bundle is being written, its folder has another name:

    .unfinished-<run>~<process>-<its start>-<where>     becomes <run> by one rename

The name contains the writing process, so the harness can always tell whether the writer is still alive.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.base import regular_file
from harness.base.beneath import Beneath
from harness.base.removal import remove
from harness.evidence.bundle_layout import UNFINISHED
from harness.machine.process_tree import started

__all__ = [
    "locked",
    "remove_stale",
    "sync_folder",
    "sync_tree",
    "unfinished",
    "write_new",
]


def write_new(place: Beneath, content: bytes) -> None:
    """Write a new file and make its parent folders. The file is on the disk only after `sync_tree`."""
    place.parent.make_folder()
    with place.create() as file:
        file.write(content)


def sync_tree(folder: Beneath) -> None:
    """Sync a folder, and every file and folder below it, to the disk.

    Call this after all files are written: one journal commit then serves most of them. Every file is synced, because
    the kernel reports an earlier write-back error once per file, at its fsync.
    """
    with folder.folder() as descriptor:
        with os.scandir(descriptor) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_folder in found:
            if is_folder:
                sync_tree(folder / name)
            else:
                with (folder / name).opened() as file:
                    os.fsync(file.fileno())
        os.fsync(descriptor)


def sync_folder(folder: Beneath) -> None:
    """Sync the list of a folder's entries to the disk."""
    with folder.folder() as descriptor:
        os.fsync(descriptor)


@contextmanager
def locked(folder: Beneath, kind: int) -> Iterator[None]:
    """Lock a folder for the block. Without LOCK_NB, continue unlocked on filesystems without locks (Lustre, NFS).

    Raises:
        OSError: `kind` has LOCK_NB, and another process has the lock or the filesystem has no locks.
    """
    with folder.folder() as descriptor:
        try:
            fcntl.flock(descriptor, kind)
        except OSError:
            if kind & fcntl.LOCK_NB:
                raise
        yield


UNKNOWN_SECONDS = 3600.0
"""The age at which a folder of another machine counts as abandoned. Sealing takes seconds."""
_NAME = re.compile(re.escape(UNFINISHED) + r".+~(?P<pid>[0-9]{1,10})-(?P<started>[0-9]{1,20})-(?P<where>[0-9a-f]{8})")


@contextmanager
def unfinished(place: Beneath) -> Iterator[Beneath]:
    """Make a folder to write a bundle into. After the block it is at `place`; after an error it is removed.

    Raises:
        OSError: the folder cannot be written, or `place` exists already.
    """
    if place.status() is not None:
        raise FileExistsError(errno.EEXIST, "exists already", str(place))
    pid = os.getpid()
    folder = place.parent / f"{UNFINISHED}{place.last}~{pid}-{started(pid) or 0}-{_where()}"
    if folder.status() is not None:
        raise FileExistsError(errno.EEXIST, "exists already", str(folder))
    folder.make_folder()
    try:
        yield folder
        folder.rename(place)  # fails if `place` has become a folder with content
        sync_folder(place.parent)
    except BaseException:
        remove(folder)
        raise


def remove_stale(claim: Beneath) -> None:
    """Remove folders that dead writers left in a claim's folder. What cannot be removed stays, but is not a bundle."""
    with suppress(OSError), claim.folder() as descriptor, os.scandir(descriptor) as entries:
        for entry in list(entries):
            if entry.name.startswith(UNFINISHED) and entry.is_dir(follow_symlinks=False) and _is_stale(entry):
                remove(claim / entry.name)


def _is_stale(entry: os.DirEntry[str]) -> bool:
    writer = _NAME.fullmatch(entry.name)
    if writer is not None and writer["where"] == _where():
        return started(int(writer["pid"])) != int(writer["started"])
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > UNKNOWN_SECONDS


def _where() -> str:
    """Return eight hex digits for the machine, its boot and the PID namespace: process ids are unique within these."""
    parts = [platform.node()]
    with suppress(OSError):
        parts += [regular_file.read(Path("/proc/sys/kernel/random/boot_id")).decode(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:8]
