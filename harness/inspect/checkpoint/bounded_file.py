"""Reads the bytes of a checkpoint: regular files only, and never past their end. All readers go through it."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["CHUNK", "BoundedFile", "Cursor", "Packed", "Refused", "Unrecognized", "opened"]

CHUNK = 1 << 22
"""How many bytes of a tensor are read at once."""


class Refused(Exception):
    """A file cannot be read, or not to its end.

    Attributes:
        reason: what is wrong, in one sentence without a full stop.
        offset: the byte where the defect shows, from the start of the file; None if the file could not be opened.
        path: the file.
    """

    def __init__(self, reason: str, offset: int | None = None, path: Path | None = None) -> None:
        where = "" if path is None else f"{path}: "
        super().__init__(f"{where}{reason}" if offset is None else f"{where}{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset
        self.path = path


class Unrecognized(Refused):
    """A file begins like none of the known checkpoint formats."""


class Packed(Unrecognized):
    """A file is compressed as a whole and must be unpacked first."""


class BoundedFile:
    """A file of known size, read by offset."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Read from the open `descriptor`. `path` is only for messages."""
        self.path = path
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    def read(self, offset: int, count: int, what: str) -> bytes:
        """Return `count` bytes from `offset`. `what` names them in a refusal.

        Raises:
            Refused: some lie outside the file. Nothing was read or allocated.
        """
        self.bound(offset, count, what)
        # One call reads at most 2 GiB on Linux.
        pieces = []
        while count:
            piece = os.pread(self._descriptor, count, offset)
            if not piece:
                raise Refused(f"the file was cut short while {what} was read", offset)
            pieces.append(piece)
            offset += len(piece)
            count -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def bound(self, offset: int, count: int, what: str) -> None:
        """Raise `Refused` if a region is not inside the file."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise Refused(
                f"{what} ends at byte {offset + count}, the file at byte {self.size}", min(max(offset, 0), self.size)
            )

    def unpack(self, form: str, offset: int, what: str) -> tuple[Any, ...]:
        """Return the fields of a `struct` format at `offset`."""
        return struct.unpack(form, self.read(offset, struct.calcsize(form), what))

    def chunks(self, offset: int, count: int, what: str, multiple: int = 1) -> Iterator[bytes]:
        """Yield a region in pieces of about `CHUNK` bytes. All but the last have a multiple of `multiple` bytes."""
        self.bound(offset, count, what)
        step = max(CHUNK // multiple, 1) * multiple
        for start in range(offset, offset + count, step):
            yield self.read(start, min(step, offset + count - start), what)


class Cursor:
    """Reads fields of a region in order, through a buffer of 64 KiB."""

    def __init__(self, source: BoundedFile, position: int, end: int, what: str) -> None:
        """Read from `position` up to, not including, `end`. `what` names the region in a refusal."""
        source.bound(position, end - position, what)
        self.position = position
        self._source = source
        self._end = end
        self._what = what
        self._start = position
        self._buffer = b""

    def bytes(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        self._within(count)
        skipped = self.position - self._start
        if skipped + count > len(self._buffer):
            self._start, skipped = self.position, 0
            wanted = min(max(count, 1 << 16), self._end - self.position)
            self._buffer = self._source.read(self.position, wanted, self._what)
        self.position += count
        return self._buffer[skipped : skipped + count]

    def skip(self, count: int) -> None:
        """Skip the next `count` bytes."""
        self._within(count)
        self.position += count

    def unpack(self, form: str) -> tuple[Any, ...]:
        """Return the next fields of a `struct` format. The format must state its byte order."""
        return struct.unpack(form, self.bytes(struct.calcsize(form)))

    def text(self, count: int) -> str:
        """Return the next `count` bytes, decoded as UTF-8."""
        start = self.position
        try:
            return self.bytes(count).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refused(f"a text in {self._what} is not UTF-8", start + error.start) from error

    def _within(self, count: int) -> None:
        if self.position + count > self._end:
            raise Refused(f"{self._what} ends at byte {self._end}, inside a field of {count} bytes", self.position)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BoundedFile]:
    """Open the regular file at `path`.

    Raises:
        Refused: the file cannot be opened, or is not a regular file.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO waits until another process writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise Refused(f"cannot be opened: {getattr(error, 'strerror', None) or error}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused("is not a regular file; name a checkpoint file, not a folder or a device")
        yield BoundedFile(path, descriptor)
    finally:
        os.close(descriptor)
