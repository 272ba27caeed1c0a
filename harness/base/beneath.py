"""Paths beneath a root, opened without following any symbolic link below it.

    place = Beneath(evidence, "PMAT-697/F-DISTILL-SMOKE-001")
    place.make_folder()
    with (place / "record.json").create() as file:
        file.write(content)

The root is trusted, and its own path may contain links. Entries beneath it can belong to others and change at any
time. So each call walks from the root with `openat`, one name at a time.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO, final

__all__ = ["Beneath"]

_PASS_THROUGH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@final
@dataclass(frozen=True)
class Beneath:
    """A root and the relative POSIX name of an entry beneath it; the empty name is the root.

    Every method raises OSError with the path that is a link, of another kind, or missing.
    """

    root: Path
    name: str = ""
    held: int | None = None
    """A descriptor of the root, from which every call walks; None to open the root by its path in each call."""

    def __post_init__(self) -> None:
        """Refuse a name that leads out of the root."""
        if self.name and any(part in ("", ".", "..") or "\0" in part for part in self.name.split("/")):
            raise ValueError(f"{self.name!r} is not a plain relative name")

    def __truediv__(self, name: str) -> Beneath:
        """Return the entry with this name beneath this one."""
        return replace(self, name=f"{self.name}/{name}" if self.name else name)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Path:
        """The path, for messages and for trusted calls."""
        return self.root / self.name

    @property
    def parent(self) -> Beneath:
        """The parent folder; ValueError for the root."""
        if not self.name:
            raise ValueError(f"{self.root} is the root")
        return replace(self, name=self.name.rpartition("/")[0])

    @property
    def last(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]

    @contextmanager
    def folder(self) -> Iterator[int]:
        """Open the folder for the block, as a descriptor."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        if not self.name:
            descriptor = os.open(self._walked, flags | os.O_CLOEXEC)
        else:
            with self.parent.passage() as above:
                descriptor = self._opened(above, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def passage(self) -> Iterator[int]:
        """Open the folder for the block as a `dir_fd` descriptor. The folder need not be readable."""
        descriptor = os.open(self._walked, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            place = Beneath(self.root)
            for part in filter(None, self.name.split("/")):
                place /= part
                above, descriptor = descriptor, place._opened(descriptor, _PASS_THROUGH)
                os.close(above)
            yield descriptor
        finally:
            os.close(descriptor)

    def entries(self, most: int | None = None) -> list[tuple[str, os.stat_result]]:
        """Return up to `most` names in the folder, sorted, each with its status. Links are not followed."""
        with self.folder() as descriptor, os.scandir(descriptor) as scan:
            return sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in islice(scan, most))

    def status(self) -> os.stat_result | None:
        """Return the status of the entry, without following a link; None if there is no entry."""
        if not self.name:
            return os.stat(self._walked)
        try:
            with self.parent.passage() as above:
                return os.stat(self.last, dir_fd=above, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def make_folder(self) -> None:
        """Create the folder and its parents, if they do not exist."""
        if not self.name:
            if self.held is not None:
                return
            try:
                self.root.mkdir(parents=True, exist_ok=True)
            except FileExistsError as error:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self.root)) from error
            return
        self.parent.make_folder()
        with self.parent.passage() as above:
            try:
                os.mkdir(self.last, dir_fd=above)
            except FileExistsError:
                os.close(self._opened(above, _PASS_THROUGH))
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self)) from error

    def opened(self) -> BinaryIO:
        """Open a regular file for reading. A pipe or a device is refused, and never blocks."""
        with self.parent.passage() as above:
            descriptor = self._opened(above, os.O_RDONLY | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "is not a regular file", str(self))
        return os.fdopen(descriptor, "rb")

    def create(self) -> BinaryIO:
        """Create a file for writing. No entry may exist, not even a link."""
        with self.parent.passage() as above:
            return os.fdopen(self._opened(above, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")

    def rename(self, to: Beneath) -> None:
        """Rename this entry."""
        with self.parent.passage() as source, to.parent.passage() as target:
            try:
                os.rename(self.last, to.last, src_dir_fd=source, dst_dir_fd=target)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self), None, str(to)) from error

    @property
    def _walked(self) -> Path:
        return self.root if self.held is None else Path(f"/proc/self/fd/{self.held}")

    def _opened(self, above: int, flags: int) -> int:
        try:
            return os.open(self.last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=above)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(self.last, above):
                raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(self)) from error
            raise OSError(error.errno, error.strerror, str(self)) from error


def _is_link(name: str, above: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
    except OSError:
        return False
