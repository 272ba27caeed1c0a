"""Bundles that an earlier merge found sound and identical, so that the next one need not read them.

    before = MergedBefore(into)
    known = before.places(bundles)  # the others have to be verified
    before.save()

A row holds while no file of the bundle and none at its place has another name, inode, size or time, and while the
harness, which decides what is sound, has the same sources.
"""

from __future__ import annotations

import errno
import hashlib
import marshal
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import final

from harness.base.beneath import Beneath
from harness.evidence.bundle_layout import MOST_ENTRIES
from harness.machine.file_memory import keep, recall
from harness.machine.provenance import harness_identity

__all__ = ["MergedBefore", "state_of_files"]

_MOST = 1_000_000
"""Rows that are kept. Beyond it, they begin anew."""


@final
class MergedBefore:
    """The results of earlier merges into one folder."""

    def __init__(self, into: Path) -> None:
        self._into = into.absolute()
        self._key = harness_identity()["sha256"]
        self._rows: dict[str, list[str]] = recall("merged", self._into, self._key) or {}
        self._news: dict[str, list[str]] = {}

    def places(self, bundles: Sequence[Path]) -> dict[Path, Path]:
        """Return the bundles whose files were found at a place and still are, with this place."""
        known: dict[Path, Path] = {}

        @cache
        def is_no_link(name: str) -> bool:
            """Whether neither this name in the folder nor a folder above it is a link."""
            return not name or (is_no_link(name.rpartition("/")[0]) and not os.path.islink(f"{self._into}/{name}"))

        for bundle in bundles:
            mine, place, theirs = self._rows.get(os.path.abspath(bundle), ("", "", ""))
            if mine and state_of_files(Beneath(bundle)) == mine and is_no_link(place):
                there = self._into / place
                if state_of_files(Beneath(there)) == theirs:
                    known[bundle] = there
        return known

    def add(self, bundle: Path, mine: str, place: Sequence[str], theirs: str) -> None:
        """Remember that a bundle with this state is sound, and its place with that state has the same bytes."""
        if mine and theirs:
            self._news[os.path.abspath(bundle)] = [mine, "/".join(place), theirs]

    def save(self) -> None:
        """Keep what was added."""
        if self._news:
            keep("merged", self._into, self._key, (self._rows if len(self._rows) < _MOST else {}) | self._news)


def _list(descriptor: int, entries: list[object]) -> None:
    """Append what is in an open folder. Raises OSError if that is too much, or no file and no folder."""
    for name in os.listdir(descriptor):
        # By the descriptor, the path of a file is not walked again.
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        entries += name, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        if S_ISDIR(status.st_mode):
            inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            try:
                _list(inside, entries)
            finally:
                os.close(inside)
        elif not S_ISREG(status.st_mode) or len(entries) > 5 * MOST_ENTRIES:
            raise OSError(errno.EINVAL, "is no bundle", name)


def state_of_files(folder: Beneath) -> str:
    """Return a digest of the names, inodes, sizes and times of all files in a folder; empty if it has others, or links.

    It can also differ if the filesystem lists the files in another order. Then the bundle is read again.
    """
    entries: list[object] = []
    try:
        with folder.folder() as descriptor:
            _list(descriptor, entries)
    except OSError:
        return ""
    return hashlib.sha256(marshal.dumps(entries, 2)).hexdigest()[:32]  # `repr` takes three times as long
