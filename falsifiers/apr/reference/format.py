"""APR v2: header, metadata, index and tensors, each padded to 64 bytes, and a CRC32 at the end.

The layout is that of aprender-core, crates/aprender-core/src/format/v2 (header_impl.rs, writer.rs, reader_impl.rs).
This reader is stricter than theirs, which ignores the footer: here the CRC32 at the end must be right, and every byte
must belong to a section.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from falsifiers.apr.subject import AprFile, Rejected, TensorRecord
from harness import Setting

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
        metadata = json.dumps(file.metadata, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        if len(metadata) > _LARGEST_METADATA:
            raise ValueError(f"the metadata takes {len(metadata)} bytes; the format allows {_LARGEST_METADATA}")
        index = b"".join(map(self.entry, tensors, self.places(tensors)))
        at_index = HEADER_SIZE + padded(len(metadata))
        header = Header(len(tensors), len(metadata), at_index, at_index + padded(len(index)))
        body = self.packed(header, self.header_checksum(self.packed(header, 0)))
        body += self.filled(metadata) + self.filled(index)
        body += b"".join(self.filled(tensor.data) for tensor in tensors)
        return body + struct.pack("<I", self.footer(body))

    def read(self, data: bytes) -> AprFile:
        """The content of a file.

        Raises:
            Rejected: the bytes are not an undamaged APR v2 file.
        """
        header = self.parsed(data)
        if header.flags & COLUMN_MAJOR or not header.flags & ROW_MAJOR:  # a wrong conversion writes column-major
            raise Rejected("the tensors are not row-major")
        if header.flags & _ENCODED:
            raise Rejected("the tensors are compressed or encrypted")
        self.check_sections(header, len(data))
        if self.footer(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise Rejected("the footer's checksum is wrong")
        tensors, end = self.tensors(data, header)
        if end + 4 != len(data):
            raise Rejected("the file does not end where its tensors do")
        return AprFile(tensors, self.metadata_of(data, header))

    # The steps of the writer.

    def ordered(self, tensors: Sequence[TensorRecord]) -> list[TensorRecord]:
        """The tensors, sorted by the UTF-8 bytes of their names."""
        if len({tensor.name for tensor in tensors}) < len(tensors):
            raise ValueError("two tensors have the same name")
        return sorted(tensors, key=lambda tensor: tensor.name.encode())

    def places(self, tensors: Sequence[TensorRecord]) -> list[int]:
        """The offset of each tensor from the beginning of the data."""
        places, end = [], 0
        for tensor in tensors:
            places.append(end)
            end += padded(len(tensor.data))
        return places

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        """One entry of the index: name, dtype, shape, offset and size."""
        name = tensor.name.encode()
        if len(name) > _LONGEST_NAME or len(tensor.shape) > _MOST_DIMENSIONS:
            raise ValueError(f"the format has no room for the name or the shape of {tensor.name!r}")
        numbers = struct.pack(f"<2B{len(tensor.shape)}Q", tensor.dtype, len(tensor.shape), *tensor.shape)
        return struct.pack("<H", len(name)) + name + numbers + struct.pack("<2Q", place, len(tensor.data))

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
        if magic != _MAGIC or (major, minor) != _VERSION:
            raise Rejected("not an APR 2.0 file")
        if self.header_checksum(data[:HEADER_SIZE]) != checksum:
            raise Rejected("the header's checksum is wrong")
        return Header(count, size, index, at_data, flags, metadata, reserved)

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
        if header.metadata_size > _LARGEST_METADATA:
            raise Rejected(f"the metadata takes {header.metadata_size} bytes; the format allows {_LARGEST_METADATA}")

    def tensors(self, data: bytes, header: Header) -> tuple[list[TensorRecord], int]:
        """The tensors of the index, and the end of the last one's padding."""
        entries, end = [], header.data
        for name, dtype, shape, offset, size in self.entries(data[header.index : header.data], header.count):
            start = header.data + offset
            entries.append(TensorRecord(name, dtype, shape, data[start : start + size]))
            end = max(end, start + padded(size))
        return entries, end

    def entries(self, index: bytes, count: int) -> Iterator[tuple[str, int, tuple[int, ...], int, int]]:
        """Yields name, dtype, shape, offset and size of every entry."""
        position = 0
        try:
            for _ in range(count):
                (length,) = struct.unpack_from("<H", index, position)
                name = index[position + 2 : position + 2 + length].decode()
                dtype, dimensions = struct.unpack_from("<2B", index, position + 2 + length)
                if length > _LONGEST_NAME or dimensions > _MOST_DIMENSIONS:
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
