"""Reads the bytes of a checkpoint: regular files only, and never past their end. All readers go through it."""

from __future__ import annotations

import contextlib
import io
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from harness.base import regular_file, strictjson
from harness.tools.inspect.budget import Budget, Refused

__all__ = ["CHUNK", "BoundedFile", "Cursor", "Packed", "Refused", "Unrecognized", "opened", "read_json"]

CHUNK = 1 << 22
"""How many bytes of a tensor are read at once."""


class Unrecognized(Refused):
    """A file begins like none of the known checkpoint formats."""


class Packed(Unrecognized):
    """A file is compressed as a whole and must be unpacked first."""


class BoundedFile:
    """A file of known size, read by offset, and the budget of its inspection."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Read from the open `descriptor`. `path` is only for messages."""
        self.path = path
        self.size = os.fstat(descriptor).st_size
        self.budget = Budget.of(descriptor)
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

    def kept(self, offset: int, count: int, what: str, values: int = 1) -> bytes:
        """Return bytes as `read` does, of a part that is kept as a whole. The budget pays for it."""
        self.bound(offset, count, what)
        self.budget.keep(count, values)
        return self.read(offset, count, what)

    def paid(self, times: int) -> BinaryIO:
        """Open the file for a library that keeps `times` the bytes that it reads. The budget pays for them."""
        return cast(BinaryIO, _Paid(self, self._descriptor, times))

    def unpack(self, form: str, offset: int, what: str) -> tuple[Any, ...]:
        """Return the fields of a `struct` format at `offset`."""
        return struct.unpack(form, self.read(offset, struct.calcsize(form), what))

    def chunks(self, offset: int, count: int, what: str) -> Iterator[bytes]:
        """Yield a region in pieces of `CHUNK` bytes; the last may have fewer."""
        self.bound(offset, count, what)
        for start in range(offset, offset + count, CHUNK):
            yield self.read(start, min(CHUNK, offset + count - start), what)


class _Paid(io.FileIO):
    """The file, read by a library at the cost of the budget. The descriptor stays open."""

    def __init__(self, source: BoundedFile, descriptor: int, times: int) -> None:
        super().__init__(descriptor, "rb", closefd=False)
        self._source, self._times = source, times

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes, or the rest."""
        left = max(self._source.size - self.tell(), 0)
        count = left if size is None or size < 0 else min(size, left)
        self._source.budget.keep(count * self._times)
        return super().read(count) or b""


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
        self._source.budget.keep(count)
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
        self._source.budget.work()
        if self.position + count > self._end:
            raise Refused(f"{self._what} ends at byte {self._end}, inside a field of {count} bytes", self.position)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BoundedFile]:
    """Open the regular file at `path`.

    Raises:
        Refused: the file cannot be opened, or is not a regular file.
    """
    try:
        file = regular_file.opened(path)
    except (OSError, ValueError) as error:
        raise Refused(f"cannot be opened: {getattr(error, 'strerror', None) or error}") from error
    with file:
        yield BoundedFile(path, file.fileno())


def read_json(source: BoundedFile, offset: int, count: int, what: str) -> Any:
    """Return the strict JSON in a region.

    Raises:
        JsonError: it is not strict JSON.
        Refused: it lies outside the file, or has more values than the budget allows.
    """
    text = source.kept(offset, count, what)
    source.budget.keep(count, sum(map(text.count, b"[{,:")))  # no value without one of these but the outermost
    return strictjson.loads(text)
