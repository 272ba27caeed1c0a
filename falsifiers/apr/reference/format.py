"""APR v2: header, metadata, index and tensors, each padded to 64 bytes, and a CRC32 at the end.

The layout is that of aprender-core, crates/aprender-core/src/format/v2 (header_impl.rs, writer.rs, reader_impl.rs).
This reader is stricter than theirs, which ignores the footer: here the CRC32 at the end must be right, and every byte
must belong to a section.

Each step is a method, so that a mutant can override one of them.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from falsifiers.apr.subject import AprFile, Rejected, TensorRecord
from harness import Setting

__all__ = ["ALIGNMENT", "COLUMN_MAJOR", "HEADER", "HEADER_SIZE", "ROW_MAJOR", "Header", "Reference", "padded"]

ALIGNMENT = 64
HEADER = "<4s2BHIQIQQI20s"
HEADER_SIZE = 64
ROW_MAJOR = 1 << 10
COLUMN_MAJOR = 1 << 11
_MAGIC = b"APR\0"
_VERSION = (2, 0)
_LONGEST_NAME = 256
_LARGEST_METADATA = 16 << 20
_MOST_DIMENSIONS = 8
_ENCODED = 0b111
"""The flags for LZ4, ZSTD and encryption, which this reader cannot undo."""


@dataclass(frozen=True)
class Header:
    """The first 64 bytes without the checksum. Offsets are in bytes from the start of the file."""

    count: int
    metadata_size: int
    index: int
    data: int
    flags: int = ROW_MAJOR
    metadata: int = HEADER_SIZE
    reserved: bytes = bytes(20)


def padded(size: int) -> int:
    """The size rounded up to a multiple of 64."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Reference:
    """The writer and the reader."""

    def __init__(self, setting: Setting) -> None:
        """Ignore the setting; the format is the same on every device."""

    def write(self, file: AprFile) -> bytes:
        """The bytes of a file.

        Raises:
            ValueError: the format has no room for the tensors or the metadata.
        """
        tensors = self.ordered(file.tensors)
        metadata = self.metadata_bytes(file.metadata)
        if not self.metadata_fits(len(metadata)):
            raise ValueError(f"the metadata takes {len(metadata)} bytes; the format allows {_LARGEST_METADATA}")
        places = self.places(tensors)
        at_index = HEADER_SIZE + padded(len(metadata))
        at_data = at_index + padded(len(self.index(tensors, places, 0)))
        header = self.header(len(tensors), len(metadata), at_index, at_data)
        body = bytearray(self.header_bytes(header))
        body += self.filled(metadata)
        body += self.filled(self.index(tensors, places, at_data))
        body += self.payload(tensors)
        return bytes(body) + struct.pack("<I", self.footer(bytes(body)))

    def read(self, data: bytes) -> AprFile:
        """The content of a file.

        Raises:
            Rejected: the bytes are not an undamaged APR v2 file.
        """
        header = self.parsed(data)
        self.check_flags(header.flags)
        self.check_sections(header, len(data))
        self.check_footer(data)
        tensors, end = self.tensors(data, header)
        self.check_end(end, len(data))
        return AprFile(tensors, self.metadata_of(data, header))

    # The limits of the format, for the writer and the reader.

    def metadata_fits(self, size: int) -> bool:
        """Whether metadata may have so many bytes."""
        return size <= _LARGEST_METADATA

    def entry_fits(self, name: int, dimensions: int) -> bool:
        """Whether a tensor may have a name of so many bytes, and so many dimensions."""
        return name <= _LONGEST_NAME and dimensions <= _MOST_DIMENSIONS

    # The steps of the writer.

    def ordered(self, tensors: Sequence[TensorRecord]) -> list[TensorRecord]:
        """The tensors, sorted by the UTF-8 bytes of their names."""
        if len({tensor.name for tensor in tensors}) < len(tensors):
            raise ValueError("two tensors have the same name")
        return sorted(tensors, key=lambda tensor: tensor.name.encode())

    def metadata_bytes(self, metadata: Mapping[str, Any]) -> bytes:
        """The metadata as JSON in UTF-8."""
        return json.dumps(metadata, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def places(self, tensors: Sequence[TensorRecord]) -> list[int]:
        """The offset of each tensor from the beginning of the data."""
        places, end = [], 0
        for tensor in tensors:
            places.append(end)
            end += padded(len(tensor.data))
        return places

    def payload(self, tensors: Sequence[TensorRecord]) -> bytes:
        """The tensors' bytes, each padded."""
        return b"".join(self.filled(tensor.data) for tensor in tensors)

    def index(self, tensors: Sequence[TensorRecord], places: Sequence[int], at_data: int) -> bytes:
        """The index, one entry per tensor. `at_data`, the offset of the data, is only for mutants."""
        return b"".join(self.entry(tensor, place) for tensor, place in zip(tensors, places, strict=True))

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        """One entry of the index: name, dtype, shape, offset and size."""
        name = tensor.name.encode()
        if not self.entry_fits(len(name), len(tensor.shape)):
            raise ValueError(f"the format has no room for the name or the shape of {tensor.name!r}")
        numbers = struct.pack(f"<2B{len(tensor.shape)}Q", tensor.dtype, len(tensor.shape), *tensor.shape)
        return struct.pack("<H", len(name)) + name + numbers + struct.pack("<2Q", place, len(tensor.data))

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        """The fields of the header."""
        return Header(count, metadata_size, at_index, at_data)

    def header_bytes(self, header: Header) -> bytes:
        """The header with its checksum."""
        return self.packed(header, self.header_checksum(self.packed(header, 0)))

    def packed(self, header: Header, checksum: int) -> bytes:
        """The header as 64 bytes, little-endian."""
        return struct.pack(
            HEADER,
            _MAGIC,
            *_VERSION,
            header.flags,
            header.count,
            header.metadata,
            header.metadata_size,
            header.index,
            header.data,
            checksum,
            header.reserved,
        )

    def header_checksum(self, header: bytes) -> int:
        """CRC32 of the header without the checksum itself."""
        return zlib.crc32(header[:40] + header[44:])

    def filled(self, section: bytes) -> bytes:
        """A section, padded with zeros to a multiple of 64."""
        return section.ljust(padded(len(section)), b"\0")

    def footer(self, body: bytes) -> int:
        """CRC32 of everything before the footer."""
        return zlib.crc32(body)

    # The steps of the reader.

    def parsed(self, data: bytes) -> Header:
        """The header, after a check of magic number, version and checksum."""
        if len(data) < HEADER_SIZE:
            raise Rejected("shorter than a header")
        magic, major, minor, flags, count, metadata, size, index, at_data, checksum, reserved = struct.unpack(
            HEADER, data[:HEADER_SIZE]
        )
        self.check_version(magic, (major, minor))
        self.check_header(data[:HEADER_SIZE], checksum)
        return Header(count, size, index, at_data, flags, metadata, reserved)

    def check_version(self, magic: bytes, version: tuple[int, int]) -> None:
        """Check magic number and version."""
        if magic != _MAGIC or version != _VERSION:
            raise Rejected("not an APR 2.0 file")

    def check_header(self, header: bytes, checksum: int) -> None:
        """Check the header's CRC32."""
        if self.header_checksum(header) != checksum:
            raise Rejected("the header's checksum is wrong")

    def check_flags(self, flags: int) -> None:
        """Reject column-major tensors, which a wrong conversion writes, and encoded ones, which would be misread."""
        if flags & COLUMN_MAJOR or not flags & ROW_MAJOR:
            raise Rejected("the tensors are not row-major")
        if flags & _ENCODED:
            raise Rejected("the tensors are compressed or encrypted")

    def check_sections(self, header: Header, size: int) -> None:
        """Check that the sections follow each other and end before the footer."""
        ends = (
            HEADER_SIZE,
            header.metadata,
            header.metadata + header.metadata_size,
            header.index,
            header.data,
            size - 4,
        )
        if list(ends) != sorted(ends):
            raise Rejected("the sections do not fit the file")
        if not self.metadata_fits(header.metadata_size):
            raise Rejected(f"the metadata takes {header.metadata_size} bytes; the format allows {_LARGEST_METADATA}")

    def check_footer(self, data: bytes) -> None:
        """Check the CRC32 of all bytes before the last four."""
        if self.footer(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise Rejected("the footer's checksum is wrong")

    def check_end(self, end: int, size: int) -> None:
        """Check that the footer follows the last tensor's padding."""
        if end + 4 != size:
            raise Rejected("the file does not end where its tensors do")

    def tensors(self, data: bytes, header: Header) -> tuple[list[TensorRecord], int]:
        """The tensors of the index, and the end of the last one's padding; `check_end` compares it with the file's."""
        found, end = [], header.data
        for name, dtype, shape, offset, size in self.entries(data[header.index : header.data], header.count):
            start = self.start(header, offset)
            found.append(TensorRecord(name, dtype, shape, data[start : start + size]))
            end = max(end, start + padded(size))
        return found, end

    def start(self, header: Header, offset: int) -> int:
        """The offset of a tensor in the file; entries count from the beginning of the data."""
        return header.data + offset

    def entries(self, index: bytes, count: int) -> Iterator[tuple[str, int, tuple[int, ...], int, int]]:
        """Yields name, dtype, shape, offset and size of every entry."""
        position = 0
        try:
            for _ in range(count):
                (length,) = struct.unpack_from("<H", index, position)
                name = index[position + 2 : position + 2 + length].decode()
                dtype, dimensions = struct.unpack_from("<2B", index, position + 2 + length)
                if not self.entry_fits(length, dimensions):
                    raise Rejected(f"the format has no room for the name or the shape of {name!r}")
                *shape, offset, size = struct.unpack_from(f"<{dimensions + 2}Q", index, position + 4 + length)
                position += 4 + length + 8 * (dimensions + 2)
                yield name, dtype, tuple(shape), offset, size
        except (struct.error, UnicodeDecodeError) as error:
            raise Rejected(f"the index is malformed: {error}") from error

    def metadata_of(self, data: bytes, header: Header) -> Mapping[str, Any]:
        """The metadata, a JSON object."""
        try:
            metadata = json.loads(data[header.metadata : header.metadata + header.metadata_size])
        except (ValueError, RecursionError) as error:
            raise Rejected(f"the metadata is not JSON: {error}") from error
        if not isinstance(metadata, dict):
            raise Rejected("the metadata is not a JSON object")
        return metadata
