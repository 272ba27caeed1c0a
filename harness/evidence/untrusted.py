"""Reads an untrusted folder: no link is followed, no pipe can block, and every read has a limit."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from harness.base.beneath import Beneath
from harness.base.regular_file import CHUNK
from harness.evidence.bundle_layout import DEEPEST, LARGEST_BUNDLE, LARGEST_DOCUMENT, MOST_ENTRIES

__all__ = ["Listing", "TooLarge", "digest", "read", "scan"]


class TooLarge(ValueError):
    """A folder or a file exceeds a limit of bundles; the text says which."""


@dataclass
class Listing:
    """The content of a folder."""

    files: dict[str, int] = field(default_factory=dict)
    """The bytes of every regular file, by relative POSIX name."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why each other entry is refused: it is neither a regular file nor a folder that can be read."""
    empty: list[str] = field(default_factory=list)
    """Folders without entries."""


def scan(root: Path) -> Listing:
    """List everything below a folder.

    Raises:
        TooLarge: more files, deeper folders or more bytes than any bundle has.
    """
    listing = Listing()
    pending = [(Beneath(root), 0)]
    count = 0
    while pending:
        folder, depth = pending.pop()
        try:
            entries = folder.entries(MOST_ENTRIES + 1)
        except OSError as error:
            listing.refused[folder.name] = f"cannot be read: {error.strerror}"
            continue
        count += len(entries)
        if count > MOST_ENTRIES:
            raise TooLarge(f"holds more than {MOST_ENTRIES} files and folders")
        if depth > DEEPEST:
            raise TooLarge(f"has folders more than {DEEPEST} deep")
        if not entries and folder.name:
            listing.empty.append(folder.name)
        for last, status in entries:
            place = folder / last
            if stat.S_ISDIR(status.st_mode):
                pending.append((place, depth + 1))
            elif stat.S_ISREG(status.st_mode):
                listing.files[place.name] = status.st_size
            else:
                is_link = stat.S_ISLNK(status.st_mode)
                listing.refused[place.name] = "is a symbolic link" if is_link else "is a pipe, a socket or a device"
    total = sum(listing.files.values())
    if total > LARGEST_BUNDLE:
        raise TooLarge(f"has {total} bytes; a bundle has at most {LARGEST_BUNDLE}")
    return listing


def read(root: Path, name: str) -> tuple[bytes, str]:
    """Return the content of a file and its sha256.

    Raises:
        OSError: the file cannot be read or is not a regular file.
        TooLarge: it has more than `bundle_layout.LARGEST_DOCUMENT` bytes.
    """
    with Beneath(root, name).opened() as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_DOCUMENT:
            raise TooLarge(f"has more than {LARGEST_DOCUMENT} bytes")
        content = file.read(size)  # a file that grows is read no further
    return content, hashlib.sha256(content).hexdigest()


def digest(root: Path, name: str, copy: IO[bytes] | None = None) -> str:
    """Return the sha256 of a file, and write its content to `copy`.

    Raises:
        OSError: like `read`.
        TooLarge: it has more than `bundle_layout.LARGEST_BUNDLE` bytes.
    """
    total, hashed = 0, hashlib.sha256()
    with Beneath(root, name).opened() as file:
        while chunk := file.read(CHUNK):
            total += len(chunk)
            if total > LARGEST_BUNDLE:
                raise TooLarge(f"has more than {LARGEST_BUNDLE} bytes")
            hashed.update(chunk)
            if copy is not None:
                copy.write(chunk)
    return hashed.hexdigest()
