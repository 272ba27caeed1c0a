"""Crash-safe writing: files are synced, and a folder is renamed into place once it is complete.

While a bundle is being written, its folder is named .unfinished-<run>. A rename to <run> completes it. The writer holds
a lock on the folder, which shows that the writer is alive.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from harness.base.beneath import Beneath
from harness.base.removal import remove
from harness.evidence.bundle_layout import MANIFEST, UNFINISHED

__all__ = [
    "locked",
    "scratch_folder",
    "sync_folder",
    "sync_tree",
    "unfinished",
    "write_new",
]


def write_new(place: Beneath, content: bytes) -> None:
    """Write a new file and create its parent folders. It is durable only after `sync_tree`."""
    place.parent.make_folder()
    with place.create() as file:
        file.write(content)


def sync_tree(folder: Beneath) -> None:
    """Sync a folder, and every file and folder below it, to the disk.

    Call this after all files are written: one journal commit then serves most of them. Every file is synced, because
    the kernel reports an earlier write-back error once per file, at its fsync.
    """
    inside = [(folder / name, stat.S_ISDIR(status.st_mode)) for name, status in folder.entries()]
    for sync in (_write_back, os.fsync):
        for place, is_folder in inside:
            if not is_folder:
                with place.opened() as file:
                    sync(file.fileno())
    for place, is_folder in inside:
        if is_folder:
            sync_tree(place)
    sync_folder(folder)


def _write_back(descriptor: int) -> None:
    """Start writing a file to the disk, so that all files of a folder are written concurrently before their fsync."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: Beneath) -> None:
    """Sync a folder's entries to the disk."""
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


_UNLOCKED_SECONDS = 3600.0
"""The age at which a folder counts as abandoned on a filesystem without locks. Sealing takes seconds."""


@contextmanager
def unfinished(place: Beneath) -> Iterator[Beneath]:
    """Create a folder for a bundle. After the block it is renamed to `place`; after an error it is removed.

    Abandoned folders beside it are removed first.

    Raises:
        OSError: the folder cannot be written, or `place` exists already.
    """
    folder = place.parent / f"{UNFINISHED}{place.last}"
    with ExitStack() as held:
        with locked(place.parent, fcntl.LOCK_EX):  # another writer must not remove the folder before it is locked
            _remove_stale(place.parent)
            for there in (place, folder):
                if there.status() is not None:
                    raise FileExistsError(errno.EEXIST, "exists already", str(there))
            folder.make_folder()
            held.enter_context(locked(folder, fcntl.LOCK_EX))
        try:
            yield folder
            folder.rename(place)  # fails if `place` has become a folder with content
            sync_folder(place.parent)
        except BaseException:
            remove(folder)
            raise


def _remove_stale(claim: Beneath) -> None:
    with suppress(OSError):
        for name, status in claim.entries():
            is_unfinished = name.startswith(UNFINISHED) and stat.S_ISDIR(status.st_mode)
            if is_unfinished and _is_stale(claim / name, status.st_mtime):
                remove(claim / name)  # what cannot be removed stays, but is not a bundle


def _is_stale(folder: Beneath, modified: float) -> bool:
    """Whether no process writes to a folder: a writer holds its lock."""
    try:
        with locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return True
    except BlockingIOError:
        return False
    except OSError:  # a filesystem without locks
        return time.time() - modified > _UNLOCKED_SECONDS


KEPT = 3
"""Maximum folders of a user, including the new one."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a temporary folder for the bundles of a run. If it is empty after the block, it is removed.

    Older folders of the user are removed, except those that a running process holds a lock on.

    Raises:
        OSError: the folder cannot be created.
    """
    above = _folder_of_user()
    with ExitStack() as held:
        with locked(Beneath(above), fcntl.LOCK_EX):  # another run must not remove the folder before it is locked
            earlier = sorted(int(entry.name) for entry in above.iterdir() if entry.name.isdecimal())
            place = Beneath(above, str(earlier[-1] + 1 if earlier else 1))
            place.path.mkdir(mode=0o700)
            held.enter_context(locked(place, fcntl.LOCK_EX))
            for number in earlier[: 1 - KEPT]:
                old = Beneath(above, str(number))
                with suppress(OSError), locked(old, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    remove(old)
        try:
            yield place.path
        finally:
            if not any(place.path.glob(f"*/*/*/{MANIFEST}")):
                remove(place)


def _folder_of_user() -> Path:
    """Return the parent of this user's scratch folders. A folder of this name that another user owns is refused."""
    folder = Path(tempfile.gettempdir()) / f"harness-scratch-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise FileExistsError(errno.EEXIST, "is not a folder of this user; remove it, or set TMPDIR", str(folder))
    return folder
