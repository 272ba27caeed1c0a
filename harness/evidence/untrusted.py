"""Reading a folder that strangers filled: nothing is followed, waited for, or read without a limit."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from harness.evidence.bundle_layout import DEEPEST, LARGEST_BUNDLE, LARGEST_DOCUMENT, MOST_ENTRIES

__all__ = ["Listing", "TooLarge", "chunks", "digest", "read", "scan"]

_CHUNK = 1 << 20


class TooLarge(ValueError):
    """A folder or a file is beyond the limits of a bundle; the text says which."""


@dataclass
class Listing:
    """What lies below a folder."""

    files: dict[str, int] = field(default_factory=dict)
    """Size in bytes of every regular file, by relative POSIX name."""
    refused: dict[str, str] = field(default_factory=dict)
    """What is neither a regular file nor a folder that could be read, and why."""
    empty: list[str] = field(default_factory=list)
    """Folders that hold nothing."""


def scan(root: Path) -> Listing:
    """List everything below a folder.

    Raises:
        TooLarge: more files, deeper folders or more bytes than any bundle has.
    """
    listing = Listing()
    pending: list[tuple[str, int]] = [("", 0)]
    count = 0
    while pending:
        prefix, depth = pending.pop()
        before = count
        try:
            with os.scandir(root / prefix) as entries:
                for entry in entries:
                    count += 1
                    if count > MOST_ENTRIES:
                        raise TooLarge(f"holds more than {MOST_ENTRIES} files and folders")
                    name = f"{prefix}/{entry.name}" if prefix else entry.name
                    if _take(listing, name, entry):
                        pending.append((name, depth + 1))
        except OSError as error:
            listing.refused[prefix] = f"cannot be read: {error.strerror}"
            continue
        if depth > DEEPEST:
            raise TooLarge(f"has folders more than {DEEPEST} deep")
        if count == before and prefix:
            listing.empty.append(prefix)
    total = sum(listing.files.values())
    if total > LARGEST_BUNDLE:
        raise TooLarge(f"has {total} bytes; a bundle has at most {LARGEST_BUNDLE}")
    return listing


def _take(listing: Listing, name: str, entry: os.DirEntry[str]) -> bool:
    """Note one entry; whether it is a folder to look into."""
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        return True
    if stat.S_ISREG(status.st_mode):
        listing.files[name] = status.st_size
    elif stat.S_ISLNK(status.st_mode):
        listing.refused[name] = "is a symbolic link"
    else:
        listing.refused[name] = "is a pipe, a socket or a device"
    return False


def read(root: Path, name: str) -> tuple[bytes, str]:
    """The content of a file and its sha256.

    Raises:
        OSError: it cannot be read, or is no regular file any more.
        TooLarge: it has more than layout.LARGEST_DOCUMENT bytes.
    """
    with _open(root / name) as file:
        content = file.read(min(os.fstat(file.fileno()).st_size, LARGEST_DOCUMENT) + 1)
    if len(content) > LARGEST_DOCUMENT:
        raise TooLarge(f"has more than {LARGEST_DOCUMENT} bytes")
    return content, hashlib.sha256(content).hexdigest()


def digest(root: Path, name: str) -> str:
    """The sha256 of a file of any size; OSError and TooLarge as for `chunks`."""
    hashed = hashlib.sha256()
    for chunk in chunks(root, name):
        hashed.update(chunk)
    return hashed.hexdigest()


def chunks(root: Path, name: str) -> Iterator[bytes]:
    """The content of a file, piece by piece.

    Raises:
        OSError: as for `read`.
        TooLarge: it has more than layout.LARGEST_BUNDLE bytes.
    """
    total = 0
    with _open(root / name) as file:
        while chunk := file.read(_CHUNK):
            total += len(chunk)
            if total > LARGEST_BUNDLE:
                raise TooLarge(f"has more than {LARGEST_BUNDLE} bytes")
            yield chunk


def _open(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is no regular file")
    return open(descriptor, "rb")
