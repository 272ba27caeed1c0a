"""Mutants of F-APR-V2-CRC-001: readers that open damaged files, each with one defect."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace

from falsifiers.apr.reference.format import HEADER_SIZE, Header, Reference, padded
from falsifiers.apr.subject import AprFile, Rejected, TensorRecord
from harness import Setting

__all__ = [
    "AcceptsWhatIsThere",
    "AlwaysRejects",
    "AnyFlags",
    "AnyMetadata",
    "AnyName",
    "AnyVersion",
    "CountIn16Bits",
    "DataFooter",
    "DropsTheTail",
    "EndUnchecked",
    "FirstBlocks",
    "HalfCompared",
    "HeaderOnly",
    "HeaderUnchecked",
    "IndexLeftOut",
    "MetadataNotSought",
    "OffsetsIn32Bits",
    "Panics",
    "RestartsInEachChunk",
    "ShortenedTensors",
    "StreamedUnchecked",
    "TrustsTheHeader",
    "VerifiedOnce",
    "WarnsOnly",
    "WrapsAround",
    "ZeroIsUnchecked",
]


class HeaderOnly(Reference):
    """Checks the header's checksum and ignores the footer, as the original reader did."""

    def check_footer(self, data: bytes) -> None:
        """Nothing."""

    def check_end(self, end: int, size: int) -> None:
        """Nothing."""


class VerifiedOnce(Reference):
    """Checks the footer only once for each header."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._seen: set[bytes] = set()

    def check_footer(self, data: bytes) -> None:
        if data[:HEADER_SIZE] not in self._seen:
            super().check_footer(data)
            self._seen.add(data[:HEADER_SIZE])


class WarnsOnly(Reference):
    """Stores a footer mismatch as a warning and reads on."""

    def check_footer(self, data: bytes) -> None:
        try:
            super().check_footer(data)
        except Rejected as error:
            self.warning = str(error)


class HeaderUnchecked(Reference):
    """Checks the footer but not the header's own checksum."""

    def check_header(self, header: bytes, checksum: int) -> None:
        """Nothing."""


class DataFooter(Reference):
    """The footer covers only the tensors, in writer and reader."""

    def footer(self, body: bytes) -> int:
        (at_data,) = struct.unpack_from("<Q", body, 32)
        return zlib.crc32(body[at_data:])


class IndexLeftOut(Reference):
    """The footer covers everything but the index, which the writer patches later."""

    def footer(self, body: bytes) -> int:
        at_index, at_data = struct.unpack_from("<2Q", body, 24)
        return zlib.crc32(body[:at_index] + body[at_data:])


class DropsTheTail(Reference):
    """The checksum covers only whole blocks of 4,096 bytes, in writer and reader."""

    def footer(self, body: bytes) -> int:
        return zlib.crc32(body[: len(body) // 4096 * 4096])


class FirstBlocks(Reference):
    """Compares the footer only for files of up to 64 KiB."""

    def check_footer(self, data: bytes) -> None:
        if len(data) <= 1 << 16:
            super().check_footer(data)


class HalfCompared(Reference):
    """Compares only 16 bits of the checksum."""

    def check_footer(self, data: bytes) -> None:
        if self.footer(data[:-4]) & 0xFFFF != int.from_bytes(data[-4:-2], "little"):
            raise Rejected("the footer's checksum is wrong")


class ZeroIsUnchecked(Reference):
    """A checksum of 0 means that there is none."""

    def check_header(self, header: bytes, checksum: int) -> None:
        if checksum:
            super().check_header(header, checksum)

    def check_footer(self, data: bytes) -> None:
        if any(data[-4:]):
            super().check_footer(data)


class EndUnchecked(Reference):
    """Checks both checksums, but not that the file ends with its tensors."""

    def check_end(self, end: int, size: int) -> None:
        """Nothing."""


class TrustsTheHeader(Reference):
    """Accepts a file whose header has the right checksum, whatever follows, as the original diagnosis did."""

    def read(self, data: bytes) -> AprFile:
        self.parsed(data)
        try:
            return super().read(data)
        except Rejected:
            return AprFile([], {})


class AcceptsWhatIsThere(Reference):
    """Opens an incomplete download as far as it goes; checks the footer only if there is one."""

    def read(self, data: bytes) -> AprFile:
        header = self.parsed(data)
        if header.data > len(data):
            raise Rejected("not even the index is there")
        ends = [
            offset + padded(size) for *_, offset, size in self.entries(data[header.index : header.data], header.count)
        ]
        end = header.data + max(ends, default=0)
        if len(data) >= end + 4 or end > 1 << 30:
            return super().read(data)
        filled = data[:end].ljust(end, b"\0")
        return super().read(filled + struct.pack("<I", self.footer(filled)))


class ShortenedTensors(Reference):
    """Checks both checksums, then cuts ranges to the size of the file."""

    def check_sections(self, header: Header, size: int) -> None:
        """Nothing, because a slice never fails."""

    def check_end(self, end: int, size: int) -> None:
        """Nothing."""

    def tensors(self, data: bytes, header: Header) -> tuple[list[TensorRecord], int]:
        found = []
        try:
            for name, dtype, shape, offset, size in self.entries(data[header.index : header.data], header.count):
                start = header.data + offset
                found.append(TensorRecord(name, dtype, shape, data[start : start + size]))
        except Rejected:
            pass  # keep the entries before the malformed one
        return found, len(data)


class Panics(Reference):
    """Uses offsets before it checks them, so an offset out of range raises IndexError."""

    def check_sections(self, header: Header, size: int) -> None:
        """Nothing."""

    def tensors(self, data: bytes, header: Header) -> tuple[list[TensorRecord], int]:
        data[header.index]
        return super().tensors(data, header)


class AlwaysRejects(Reference):
    """Rejects every file, damaged or not."""

    def read(self, data: bytes) -> AprFile:
        raise Rejected(f"shorter than {HEADER_SIZE} bytes, or not")


class StreamedUnchecked(Reference):
    """Does not check the footer of files that are flagged as streamed."""

    def check_footer(self, data: bytes) -> None:
        (flags,) = struct.unpack_from("<H", data, 6)
        if not flags & 1 << 8:
            super().check_footer(data)


class RestartsInEachChunk(Reference):
    """Restarts the checksum in every chunk of 1 MiB."""

    def check_footer(self, data: bytes) -> None:
        checksum = 0
        for start in range(0, len(data) - 4, 1 << 20):
            checksum = self.footer(data[start : min(start + (1 << 20), len(data) - 4)])
        if checksum != int.from_bytes(data[-4:], "little"):
            raise Rejected("the footer's checksum is wrong")


class OffsetsIn32Bits(Reference):
    """Truncates offsets and sizes to 32 bits."""

    def parsed(self, data: bytes) -> Header:
        header = super().parsed(data)
        return replace(header, index=header.index % 2**32, data=header.data % 2**32)

    def entries(self, index: bytes, count: int) -> Iterator[tuple[str, int, tuple[int, ...], int, int]]:
        for name, dtype, shape, offset, size in super().entries(index, count):
            yield name, dtype, shape, offset % 2**32, size % 2**32


class CountIn16Bits(Reference):
    """Truncates the number of tensors to 16 bits."""

    def parsed(self, data: bytes) -> Header:
        header = super().parsed(data)
        return replace(header, count=header.count % 2**16)


class MetadataNotSought(Reference):
    """Reads the metadata after the header, whatever offset the header gives."""

    def parsed(self, data: bytes) -> Header:
        return replace(super().parsed(data), metadata=HEADER_SIZE)


class WrapsAround(Reference):
    """Adds offset and size modulo 2**64 and compares the sum with the end."""

    def tensors(self, data: bytes, header: Header) -> tuple[list[TensorRecord], int]:
        found, end = [], header.data
        for name, dtype, shape, offset, size in self.entries(data[header.index : header.data], header.count):
            start = (header.data + offset) % 2**64
            stop = (start + size) % 2**64
            if stop > len(data) - 4:
                raise Rejected(f"the tensor {name!r} reaches past the end")
            found.append(TensorRecord(name, dtype, shape, data[start:stop]))
            end = max(end, padded(stop))
        return found, end


class AnyVersion(Reference):
    """Reads every file with the magic number as version 2.0."""

    def check_version(self, magic: bytes, version: tuple[int, int]) -> None:
        super().check_version(magic, (2, 0))


class AnyFlags(Reference):
    """Does not look at the flags."""

    def check_flags(self, flags: int) -> None:
        """Nothing."""


class AnyName(Reference):
    """Has no limit for names and dimensions."""

    def entry_fits(self, name: int, dimensions: int) -> bool:
        return True


class AnyMetadata(Reference):
    """Has no limit for metadata."""

    def metadata_fits(self, size: int) -> bool:
        return True
