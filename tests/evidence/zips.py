"""Zip files written byte by byte, so that they can be false. An `Entry()` without changes is true."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Entry", "write_zip"]

REGULAR = 0o100644 << 16


@dataclass(frozen=True)
class Entry:
    """One entry; fields that are None have the true value."""

    name: bytes
    data: bytes = b""
    """The content as it lies in the file: already deflated, if `method` says so."""
    method: int = 0
    flags: int = 0x0800
    needed: int = 20
    attributes: int = REGULAR
    extra: bytes = b""
    local_extra: bytes = b""
    comment: bytes = b""
    local_name: bytes | None = None
    size: int | None = None
    local_size: int | None = None
    crc: int | None = None
    before: bytes = b""
    """Bytes between this entry and the one before it."""
    descriptor: bytes = b""
    offset: int | None = None


def write_zip(
    path: Path,
    entries: list[Entry],
    *,
    after: bytes = b"",
    comment: bytes = b"",
    gap: bytes = b"",
    count: int | None = None,
) -> Path:
    """Write the entries, their directory and the end record. All lengths that are not overridden are true."""
    body, directory = b"", b""
    for entry in entries:
        body += entry.before
        size = len(entry.data) if entry.size is None else entry.size
        crc = zlib.crc32(entry.data) if entry.crc is None else entry.crc
        local_size = size if entry.local_size is None else entry.local_size
        header = (crc, len(entry.data), local_size) if not entry.flags & 8 else (0, 0, 0)
        offset = len(body) if entry.offset is None else entry.offset
        name = entry.name if entry.local_name is None else entry.local_name
        head = (entry.needed, entry.flags, entry.method, 0, 33)
        body += struct.pack("<4s5H3L2H", b"PK\3\4", *head, *header, len(name), len(entry.local_extra))
        body += name + entry.local_extra + entry.data + entry.descriptor
        lengths = (len(entry.name), len(entry.extra), len(entry.comment))
        directory += struct.pack(
            "<4s6H3L5H2L",
            *(b"PK\1\2", 0x0314, *head, crc, len(entry.data), size, *lengths, 0, 0, entry.attributes, offset),
        )
        directory += entry.name + entry.extra + entry.comment
    body += gap
    number = len(entries) if count is None else count
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, number, number, len(directory), len(body), len(comment))
    path.write_bytes(body + directory + end + comment + after)
    return path
