"""Logs and step series of trials, with bounded size for any number of bytes and steps."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from harness.base.redaction import Redactor
from harness.base.strictjson import JsonObject

__all__ = ["CUT", "MOST", "NUL", "BoundedLog", "Log", "StepSeries", "Steps"]

CUT = "bytes left out"
"""A part of the line that marks a cut in a log."""
NUL = "\N{SYMBOL FOR NULL}"
"""The character that replaces a NUL."""

HEAD_BYTES = 16 << 10
TAIL_BYTES = 48 << 10
_MARGIN = 16 << 10
"""Bytes beyond a cut that are searched for the rest of a secret."""
_LINE_END = re.compile(rb"[\r\n]")  # a progress bar writes only carriage returns


@dataclass(frozen=True)
class Log:
    """One stream of a trial, as stored in a bundle."""

    text: str
    """The whole stream; or its beginning and end, with a line between them that states how much is missing."""
    size: int
    """Bytes that the trial wrote."""
    digest: str
    """SHA-256 of all bytes that the trial wrote."""


class BoundedLog:
    """Reads a stream of any length and keeps its beginning, its end and its digest."""

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_bytes, self._tail_bytes = head_bytes, tail_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._size = 0
        self._hash = hashlib.sha256()

    def feed(self, chunk: bytes) -> None:
        """Append the next bytes."""
        self._hash.update(chunk)
        before = self._size
        self._size += len(chunk)
        room = self._head_bytes + _MARGIN - len(self._head)
        self._head += chunk[: max(room, 0)]
        if chunk := chunk[max(self._head_bytes - before, 0) :]:
            self._tail.append(chunk)
            self._tail_size += len(chunk)
            while self._tail_size - len(self._tail[0]) >= self._tail_bytes + _MARGIN:
                self._tail_size -= len(self._tail.popleft())

    def close(self, redactor: Redactor) -> Log:
        """Return the log with secrets masked."""
        head, tail = bytes(self._head[: self._head_bytes]), b"".join(self._tail)
        if self._size <= self._head_bytes + self._tail_bytes:
            return Log(redactor.mask(_decode(head + tail)), self._size, self._hash.hexdigest())
        # Cut at line ends: a part of an unknown token could not be recognized.
        end = max(head.rfind(b"\n"), head.rfind(b"\r")) + 1
        newest = max(len(tail) - self._tail_bytes, 0)
        first = _LINE_END.search(tail, newest)
        start = first.end() if first else len(tail)
        omitted = self._size - end - (len(tail) - start)
        before, after = _decode(bytes(self._head[:end])), _decode(tail[start:])
        beginning = before + _decode(bytes(self._head[end:]))
        ending = _decode(tail[max(start - _MARGIN, 0) : start]) + after
        text = redactor.mask(beginning, 0, len(before))
        text += f"\n[… {omitted} {CUT}; the digest covers them …]\n"
        text += redactor.mask(ending, len(ending) - len(after))
        return Log(text, self._size, self._hash.hexdigest())


def _decode(content: bytes) -> str:
    return content.decode("utf-8", errors="replace").replace("\0", NUL)


MOST: Final = 8192
"""Maximum rows in memory, so that an endless trial does not exhaust it. A bundle keeps fewer."""

Row = JsonObject


@dataclass(frozen=True)
class Steps:
    """The first row, then every `stride`-th row, and the last."""

    rows: tuple[Row, ...] = ()
    count: int = 0
    """Number of recorded rows."""
    stride: int = 1


@dataclass
class StepSeries:
    """Collects rows. At the limit, it drops every second row and doubles the stride."""

    most: int = MOST
    _rows: list[Row] = field(default_factory=list)
    _last: Row | None = None
    _count: int = 0
    _stride: int = 1

    def add(self, row: Row) -> None:
        """Append the next row."""
        if self._count % self._stride == 0:
            if len(self._rows) >= self.most:
                del self._rows[1::2]
                self._stride *= 2
            if self._count % self._stride == 0:
                self._rows.append(row)
        self._last = row
        self._count += 1

    def close(self) -> Steps:
        """Return the series."""
        rows = tuple(self._rows)
        if self._last is not None and self._last is not rows[-1]:
            rows = (*rows, self._last)
        return Steps(rows, self._count, self._stride)
