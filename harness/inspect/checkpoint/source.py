"""The one place that touches a checkpoint's bytes: regular files only, and never past their end."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["CHUNK", "Cursor", "Packed", "Refused", "Source", "Unrecognized", "opened"]

CHUNK = 1 << 22
"""Bytes that are read at once while tensors are looked at."""


class Refused(Exception):
    """A file that is not read, or not further: the reason, and the byte offset where it shows.

    Attributes:
        reason: what is wrong, in one sentence without a full stop.
        offset: counted from the file's start; None where the file could not be opened.
        path: the file.
    """

    def __init__(self, reason: str, offset: int | None = None, path: Path | None = None) -> None:
        where = "" if path is None else f"{path}: "
        super().__init__(f"{where}{reason}" if offset is None else f"{where}{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset
        self.path = path


class Unrecognized(Refused):
    """A file that begins like no checkpoint."""


class Packed(Unrecognized):
    """A file whose content is compressed: what is in it cannot be seen before it is unpacked."""


class Source:
    """A file of known size, read by offset."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Read the open `descriptor`; `path` is only told."""
        self.path = path
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    def read(self, offset: int, count: int, what: str) -> bytes:
        """`count` bytes from `offset`; `what` names them in a refusal.

        Raises:
            Refused: they are not all inside the file. Nothing is read or allocated then.
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
        """Refuse a region that is not inside the file."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise Refused(
                f"{what} ends at byte {offset + count}, the file at byte {self.size}", min(max(offset, 0), self.size)
            )

    def unpack(self, form: str, offset: int, what: str) -> tuple[Any, ...]:
        """The fields of a `struct` format at `offset`."""
        return struct.unpack(form, self.read(offset, struct.calcsize(form), what))

    def chunks(self, offset: int, count: int, what: str, multiple: int = 1) -> Iterator[bytes]:
        """A region in pieces of about `CHUNK` bytes, each but the last a multiple of `multiple` long."""
        self.bound(offset, count, what)
        step = max(CHUNK // multiple, 1) * multiple
        for start in range(offset, offset + count, step):
            yield self.read(start, min(step, offset + count - start), what)


class Cursor:
    """Takes fields one after the other out of a region, a buffer of 64 KiB at a time."""

    def __init__(self, source: Source, position: int, end: int, what: str) -> None:
        """Begin at `position`; nothing from `end` on is taken. `what` names the region in a refusal."""
        source.bound(position, end - position, what)
        self.position = position
        self._source = source
        self._end = end
        self._what = what
        self._start = position
        self._buffer = b""

    def bytes(self, count: int) -> bytes:
        """The next `count` bytes."""
        self._within(count)
        skipped = self.position - self._start
        if skipped + count > len(self._buffer):
            self._start, skipped = self.position, 0
            wanted = min(max(count, 1 << 16), self._end - self.position)
            self._buffer = self._source.read(self.position, wanted, self._what)
        self.position += count
        return self._buffer[skipped : skipped + count]

    def skip(self, count: int) -> None:
        """Pass over the next `count` bytes."""
        self._within(count)
        self.position += count

    def unpack(self, form: str) -> tuple[Any, ...]:
        """The next fields, by a `struct` format that says its byte order."""
        return struct.unpack(form, self.bytes(struct.calcsize(form)))

    def text(self, count: int) -> str:
        """The next `count` bytes as UTF-8."""
        start = self.position
        try:
            return self.bytes(count).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refused(f"a text in {self._what} is no UTF-8", start + error.start) from error

    def _within(self, count: int) -> None:
        if self.position + count > self._end:
            raise Refused(f"{self._what} ends at byte {self._end}, inside a field of {count} bytes", self.position)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Source]:
    """The regular file at `path`.

    Raises:
        Refused: it cannot be opened, or is no regular file.
    """
    try:
        # A FIFO would otherwise be waited for, until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise Refused(f"cannot be opened: {getattr(error, 'strerror', None) or error}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused("is no regular file; name a checkpoint file, not a folder or a device")
        yield Source(path, descriptor)
    finally:
        os.close(descriptor)
