"""Logs of trials, limited in size, with secrets masked and the digest of the whole."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from dataclasses import dataclass

from harness.base.redaction import Redactor

__all__ = ["BoundedLog", "Log"]

HEAD_BYTES = 16 << 10
TAIL_BYTES = 48 << 10
_LINE_END = re.compile(rb"[\r\n]")  # a progress bar writes only carriage returns


@dataclass(frozen=True)
class Log:
    """One stream of a trial, as a bundle keeps it."""

    text: str
    """The whole stream, or its beginning and end with a line between them that says how much is missing."""
    size: int
    """Bytes that the trial wrote."""
    digest: str
    """The sha256 of all bytes that the trial wrote."""


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
        """Take the next bytes."""
        self._hash.update(chunk)
        self._size += len(chunk)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._tail.append(chunk)
            self._tail_size += len(chunk)
            while self._tail_size - len(self._tail[0]) >= self._tail_bytes:
                self._tail_size -= len(self._tail.popleft())

    def close(self, redactor: Redactor) -> Log:
        """The log with its secrets masked."""
        head, tail = bytes(self._head), b"".join(self._tail)[-self._tail_bytes :]
        omitted = self._size - len(head) - len(tail)
        if omitted > 0:
            # Cut at the ends of lines: half a secret cannot be recognised.
            head = head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]
            first = _LINE_END.search(tail)
            tail = tail[first.end() :] if first else b""
            omitted = self._size - len(head) - len(tail)
            middle = f"\n[… {omitted} bytes left out; the digest covers them …]\n"
            text = redactor.mask(_decode(head)) + middle + redactor.mask(_decode(tail))
        else:
            text = redactor.mask(_decode(head + tail))
        return Log(text, self._size, self._hash.hexdigest())


def _decode(content: bytes) -> str:
    return content.decode("utf-8", errors="replace").replace("\0", "\N{SYMBOL FOR NULL}")
