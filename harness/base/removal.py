"""Removes files of code under test: at any depth, without permissions, and of any kind.

    for remark in remove(Beneath(folder, "workspace")):
        …   # a file that is left, and why

Each folder is moved into the topmost one before it is emptied. So no path is too long, and the depth uses neither
stack nor descriptors.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from harness.base.beneath import Beneath

__all__ = ["remove"]

_MOST_REMARKS = 3
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(place: Beneath) -> list[str]:
    """Remove a file or a folder tree. It may be missing. Links are removed, not followed.

    Returns:
        path and reason of the first files that are left. Only KeyboardInterrupt is raised.
    """
    removal = _Removal(place)
    try:
        with place.parent.passage() as above:
            removal.entry(above, place.last)
    except FileNotFoundError:
        pass
    except OSError as error:
        removal.note(str(place), error)
    return removal.remarks()


class _Removal:
    """One removal: the pending folders, and the files that could not be removed."""

    def __init__(self, place: Beneath) -> None:
        self._place = place
        self._pending: list[str] = []
        """Names of folders in the topmost folder."""
        self._prefix, self._count = f".{secrets.token_hex(8)}-", 0
        self._left: list[str] = []
        self._omitted = 0

    def remarks(self) -> list[str]:
        return [*self._left, *([f"and {self._omitted} more"] if self._omitted else [])]

    def note(self, path: str, error: OSError) -> None:
        if len(self._left) < _MOST_REMARKS:
            self._left.append(f"{path}: {error.strerror or error}")
        else:
            self._omitted += 1

    def entry(self, above: int, name: str) -> None:
        """Remove an entry."""
        if not _is_folder(above, name):
            os.unlink(name, dir_fd=above)
            return
        with _emptiable(above, name) as top:
            self._empty(top, top, "")
            while self._pending:
                self._subfolder(top, self._pending.pop())
        if not self._left:
            os.rmdir(name, dir_fd=above)

    def _subfolder(self, top: int, name: str) -> None:
        before = len(self._left) + self._omitted
        with self._noting(name):
            with _emptiable(top, name) as folder:
                self._empty(folder, top, name)
            if len(self._left) + self._omitted == before:
                os.rmdir(name, dir_fd=top)

    def _empty(self, folder: int, top: int, label: str) -> None:
        """Remove the files of a folder, and move its subfolders into the topmost folder."""
        with os.scandir(folder) as entries:
            for entry in entries:
                with self._noting(f"{label}/{entry.name}" if label else entry.name):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.name, dir_fd=folder)
                    elif folder == top:
                        self._pending.append(entry.name)
                    else:
                        self._raise(entry.name, folder, top)

    def _raise(self, name: str, folder: int, top: int) -> None:
        self._count += 1
        new = f"{self._prefix}{self._count}"
        with _emptiable(folder, name):  # the move changes its "..", so it must be writable
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
        self._pending.append(new)

    @contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            pass  # another process removed it
        except OSError as error:
            self.note(f"{self._place}/{name}", error)


def _is_folder(above: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)


@contextmanager
def _emptiable(above: int, name: str) -> Iterator[int]:
    """Open a folder for the block, and grant permission to list and change it."""
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        with suppress(OSError):  # another user's folder, which may be accessible nevertheless
            os.chmod(f"/proc/self/fd/{path}", stat.S_IRWXU)
    finally:
        os.close(path)
    descriptor = os.open(name, _LISTED, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
