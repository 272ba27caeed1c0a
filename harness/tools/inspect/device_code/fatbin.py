"""Reads fatbin images, in which nvcc packs machine code and PTX for several targets.

NVIDIA does not document the layout. This description comes from images that nvcc 13.0 wrote with each of its
compression modes. A header of 16 bytes holds the magic number, the version, the size of the header and the size of the
rest. Entries follow. The header of an entry holds these fields:

    byte 0   kind (1 PTX, 2 ELF)
    byte 4   size of this header
    byte 8   size of the content that follows
    byte 16  size of the content without padding, if it is compressed
    byte 28  compute capability
    byte 40  flags (0x2000 LZ4, 0x8000 Zstandard)
    byte 56  size of the content after decompression
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from harness.base.plugins import installation
from harness.tools.inspect.budget import Budget
from harness.tools.inspect.device_code.elf import Malformed

__all__ = ["MAGIC", "Entry", "Kind", "claimed_size", "is_header", "read_fatbin"]

MAGIC: Final = b"\x50\xed\x55\xba"

_LZ4, _ZSTD = 0x2000, 0x8000
_LARGEST: Final = 64 * 2**20
_LZ4_COSTS: Final = 16  # our LZ4 decoder is written in Python, and about this many times slower than Zstandard
_OBJECTS_OF_AN_ENTRY: Final = 16
_MOST_ENTRIES: Final = 65536
_LARGEST_VERSION, _LARGEST_HEADER = 255, 4096
"""Bounds for a plausible header. nvcc writes version 1 and 16 bytes."""


class Kind(IntEnum):
    """The kinds of entries that are decoded. nvcc writes others, such as code for link-time optimisation."""

    PTX = 1
    ELF = 2


@dataclass(frozen=True)
class Entry:
    """One entry of a fatbin image.

    Attributes:
        kind: a `Kind`, or a number that we do not decode.
        sm: the compute capability in its header, such as 121.
        offset: of its header, in bytes from the start of the image.
        size: of header and content, in bytes.
        content: the decompressed content; None if it cannot be decompressed.
        reason: why `content` is None.
    """

    kind: int
    sm: int
    offset: int
    size: int
    content: memoryview | None
    reason: str | None = None


def is_header(data: memoryview) -> bool:
    """Whether a plausible header follows the magic number at the start of `data`; it may be of any version, or broken.

    A program that handles fatbin images has the magic number among its instructions, followed by unrelated bytes.
    """
    if len(data) < 8:
        return False
    version = int.from_bytes(data[4:6], "little")
    header = int.from_bytes(data[6:8], "little")
    return 0 < version <= _LARGEST_VERSION and 16 <= header <= _LARGEST_HEADER and header % 8 == 0


def claimed_size(data: memoryview) -> int | None:
    """The size in bytes that the image at the start of `data` states in its header; None if no header begins there."""
    if len(data) < 16 or bytes(data[:4]) != MAGIC or not is_header(data):
        return None
    header, rest = struct.unpack_from("<HQ", data, 6)
    return int(header + rest)


def read_fatbin(data: memoryview, budget: Budget) -> tuple[int, Iterator[Entry]]:
    """Return the size in bytes of the image at the start of `data`, and its entries.

    The iterator decodes one entry at a time and can raise `Malformed` too.

    Raises:
        Malformed: the header or an entry's header contradicts itself, or lies past the end of the file.
        Refused: the entries exceed the budget.
    """
    if len(data) < 16 or bytes(data[:4]) != MAGIC:
        raise Malformed("no fatbin header")
    version, header, rest = struct.unpack_from("<HHQ", data, 4)
    if version != 1 or header < 16 or header + rest > len(data):
        raise Malformed(f"fatbin version {version} of {header} + {rest} bytes in a file with {len(data)} left")
    return header + rest, _entries(data[: header + rest], header, budget)


def _entries(data: memoryview, at: int, budget: Budget) -> Iterator[Entry]:
    for _ in range(_MOST_ENTRIES):
        if at == len(data):
            return
        budget.keep(0, _OBJECTS_OF_AN_ENTRY)
        if at + 64 > len(data):
            raise Malformed(f"{len(data) - at} bytes behind the last entry of a fatbin")
        kind, _version, header, size = struct.unpack_from("<HHIQ", data, at)
        compressed, sm = struct.unpack_from("<I8xI", data, at + 16)
        flags, whole = struct.unpack_from("<Q8xQ", data, at + 40)
        if header < 64 or at + header + size > len(data) or compressed > size:
            raise Malformed(f"an entry of a fatbin claims {header} + {size} bytes of {len(data) - at}")
        content: memoryview | None = data[at + header : at + header + size]
        reason = None
        if flags & (_LZ4 | _ZSTD):
            content, reason = _decompressed(data[at + header : at + header + compressed], flags, whole, budget)
        yield Entry(kind, sm, at, header + size, content, reason)
        at += header + size
    raise Malformed(f"more than {_MOST_ENTRIES} entries in a fatbin")


def _decompressed(data: memoryview, flags: int, size: int, budget: Budget) -> tuple[memoryview | None, str | None]:
    """Return the content, or None and the reason."""
    if size > _LARGEST:
        return None, f"compressed: {size:,} bytes once decompressed, more than are read"
    budget.make(size * (_LZ4_COSTS if flags & _LZ4 else 1))
    try:
        return memoryview(_lz4(data, size) if flags & _LZ4 else _zstandard(data, size)), None
    except ModuleNotFoundError:
        return None, f"compressed with Zstandard; to read it, {installation('device-code')}"
    except Malformed as error:
        return None, str(error)


def _zstandard(data: memoryview, size: int) -> bytes:
    import zstandard

    try:
        content = zstandard.ZstdDecompressor(max_window_size=_LARGEST).stream_reader(data).read(size)
    except (zstandard.ZstdError, MemoryError) as error:
        raise Malformed(f"compressed, and corrupt: {error}") from error
    if len(content) != size:
        raise Malformed(f"compressed, and corrupt: {len(content)} bytes where its header says {size}")
    return bytes(content)


def _lz4(data: memoryview, size: int) -> bytes:
    """Decode the LZ4 block format: literals, then a copy of earlier output, until the input ends."""
    out = bytearray()
    at = 0
    try:
        while at < len(data):
            token = data[at]
            literals, at = _length(data, at + 1, token >> 4)
            if literals > len(data) - at or len(out) + literals > size:
                raise Malformed("compressed with LZ4, and corrupt: more than its header says")
            out += data[at : at + literals]
            at += literals
            if at == len(data):
                break
            distance = data[at] | data[at + 1] << 8
            copied, at = _length(data, at + 2, token & 0xF)
            copied += 4
            if not 0 < distance <= len(out) or len(out) + copied > size:
                raise Malformed("compressed with LZ4, and corrupt: a copy from nowhere")
            source = bytes(out[-distance:])
            out += (source * (copied // distance + 1))[:copied]
    except IndexError as error:
        raise Malformed("compressed with LZ4, and cut short") from error
    if len(out) != size:
        raise Malformed(f"compressed with LZ4, and corrupt: {len(out)} bytes where its header says {size}")
    return bytes(out)


def _length(data: memoryview, at: int, length: int) -> tuple[int, int]:
    """Return a length that may need more than four bits, and the offset where reading continues."""
    if length == 15:
        while True:
            more = data[at]
            at += 1
            length += more
            if more != 255:
                break
    return length, at
