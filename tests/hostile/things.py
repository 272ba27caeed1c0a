"""What can be in the place of a file: no regular file, too much of one, and texts that are no document."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

__all__ = ["DOCUMENTS", "THINGS", "put"]


def put(path: Path, make: Callable[[Path], object]) -> None:
    """Put a thing in the place of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(path.parent, os.O_DIRECTORY)
        try:
            server.bind(f"/proc/self/fd/{here}/{path.name}")  # the path of a socket has at most 107 bytes
        finally:
            os.close(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(600 << 20)


def _long(path: Path) -> None:
    path.write_bytes(b'{"a": "' + b"x" * (17 << 20) + b'"}')


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


THINGS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a socket": _socket,
    "a folder": Path.mkdir,
    "a link to itself": _loop,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "600 MB of zeros": _sparse,
    "17 MB of text": _long,
    "an unreadable kernel file": lambda path: path.symlink_to("/proc/self/mem"),
}

_TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "random bytes": bytes(range(256)) * 4,
    "bad UTF-8": b'{"id": "\xff\xfe"}',
    "UTF-16": '{"id": 1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "a key twice": b'{"name": 1, "name": 2}',
    "a long key twice": b'{"%b": 1, "%b": 2}' % (b"k" * (1 << 20), b"k" * (1 << 20)),
    "a huge integer": b'{"a": ' + b"9" * 100_000 + b"}",
    "NaN": b'{"a": NaN}',
    "null": b"null",
    "a list": b"[]",
    "a number": b"1e400",
    "an empty object": b"{}",
    "half a pair of surrogates": b'{"\\ud800": "\\udfff"}',
    "a million empty lists": b"[" + b"[]," * 1_000_000 + b"[]]",
    "escapes of a terminal": b'{"\\u001b[2J\\u202e": "\\u001b]0;x\\u0007"}',
}
DOCUMENTS: dict[str, Callable[[Path], object]] = {
    name: lambda path, text=text: path.write_bytes(text)  # type: ignore[misc]
    for name, text in _TEXTS.items()
}
