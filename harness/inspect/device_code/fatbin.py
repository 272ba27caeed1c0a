"""Fatbin images: what nvcc packs machine code and PTX for several targets into.

NVIDIA does not document the layout. A header of 16 bytes (magic, version, size of the header, size of the rest) is
followed by entries; an entry's header has at byte 0 its kind (1 PTX, 2 ELF), 4 its own size, 8 the size of what
follows, 16 that size before padding if compressed, 28 the compute capability, 40 flags and 56 the size once
decompressed. All of this was read off images that nvcc 13.0 wrote with each of its compression modes: flag 0x2000 is
LZ4, 0x8000 Zstandard.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from harness.inspect.device_code.elf import Malformed

__all__ = ["MAGIC", "Allowance", "Entry", "Kind", "is_header", "read_fatbin"]

MAGIC: Final = b"\x50\xed\x55\xba"

_LZ4, _ZSTD = 0x2000, 0x8000
_LARGEST: Final = 64 * 2**20
_LZ4_COSTS: Final = 16  # our LZ4 is written in Python, and slower than Zstandard by about this
_MOST_ENTRIES: Final = 65536
_LARGEST_VERSION, _LARGEST_HEADER = 255, 4096
"""Of a header that somebody may mean; nvcc writes version 1 and 16 bytes."""


class Kind(IntEnum):
    """Kinds of entries that we know; nvcc has others, such as code for link-time optimisation."""

    PTX = 1
    ELF = 2


class Allowance:
    """How many bytes may still be decompressed of one file, so that a small one cannot keep us for ever."""

    def __init__(self, left: int = 4 * 2**30) -> None:
        """`left` in bytes of Zstandard."""
        self._left = left

    def take(self, size: int) -> bool:
        """Whether `size` more bytes are allowed."""
        if size > self._left:
            return False
        self._left -= size
        return True


@dataclass(frozen=True)
class Entry:
    """One entry: its kind, the capability that its header names, and its content or why that cannot be had."""

    kind: int
    sm: int
    offset: int
    size: int
    content: memoryview | None
    reason: str | None = None


def is_header(data: memoryview) -> bool:
    """Whether the magic at the start of `data` begins a header, of whatever version, whole or broken.

    A program that handles fatbin images has the magic among its instructions, with anything behind it.
    """
    if len(data) < 8:
        return False
    version = int.from_bytes(data[4:6], "little")
    header = int.from_bytes(data[6:8], "little")
    return 0 < version <= _LARGEST_VERSION and 16 <= header <= _LARGEST_HEADER and header % 8 == 0


def read_fatbin(data: memoryview, allowance: Allowance) -> tuple[int, Iterator[Entry]]:
    """How many bytes the image at the start of `data` has, and its entries, offsets counted from that start.

    The entries are decoded one by one as they are asked for, and raise the same.

    Raises:
        Malformed: the header or an entry's header contradicts itself, or lies past the end.
    """
    if len(data) < 16 or bytes(data[:4]) != MAGIC:
        raise Malformed("no fatbin header")
    version, header, rest = struct.unpack_from("<HHQ", data, 4)
    if version != 1 or header < 16 or header + rest > len(data):
        raise Malformed(f"fatbin version {version} of {header} + {rest} bytes in a file with {len(data)} left")
    return header + rest, _entries(data[: header + rest], header, allowance)


def _entries(data: memoryview, at: int, allowance: Allowance) -> Iterator[Entry]:
    for _ in range(_MOST_ENTRIES):
        if at == len(data):
            return
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
            content, reason = _decompressed(data[at + header : at + header + compressed], flags, whole, allowance)
        yield Entry(kind, sm, at, header + size, content, reason)
        at += header + size
    raise Malformed(f"more than {_MOST_ENTRIES} entries in a fatbin")


def _decompressed(
    data: memoryview, flags: int, size: int, allowance: Allowance
) -> tuple[memoryview | None, str | None]:
    """The content, or the reason why there is none."""
    if size > _LARGEST or not allowance.take(size * (_LZ4_COSTS if flags & _LZ4 else 1)):
        return None, f"compressed: {size:,} bytes once decompressed, more than are read"
    try:
        return memoryview(_lz4(data, size) if flags & _LZ4 else _zstandard(data, size)), None
    except ModuleNotFoundError:
        return None, "compressed with Zstandard; to read it, pip install 'falsifier-harness[device-code]'"
    except Malformed as error:
        return None, str(error)


def _zstandard(data: memoryview, size: int) -> bytes:
    import zstandard

    try:
        found = zstandard.ZstdDecompressor(max_window_size=_LARGEST).stream_reader(data).read(size)
    except (zstandard.ZstdError, MemoryError) as error:
        raise Malformed(f"compressed, and corrupt: {error}") from error
    if len(found) != size:
        raise Malformed(f"compressed, and corrupt: {len(found)} bytes where its header says {size}")
    return bytes(found)


def _lz4(data: memoryview, size: int) -> bytes:
    """The LZ4 block format: literals, then a copy from what was decoded before, until the input ends."""
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
    """A length that four bits may not hold, and where reading goes on."""
    if length == 15:
        while True:
            more = data[at]
            at += 1
            length += more
            if more != 255:
                break
    return length, at
