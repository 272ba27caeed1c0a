"""Mutants of F-APR-V2-LAYOUT-001: writers, with matching readers, that depart from the table in one way each."""

from __future__ import annotations

import struct
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from falsifiers.apr.reference.format import COLUMN_MAJOR, HEADER, ROW_MAJOR, Header, Reference, padded
from falsifiers.apr.subject import AprFile, Rejected, TensorRecord

__all__ = [
    "AbsoluteOffsets",
    "AsIfDataWereInOrder",
    "BigEndianOffset",
    "CastagnoliFooter",
    "ChecksumWithItself",
    "ColumnMajorAccepted",
    "ColumnMajorSet",
    "CountInAByte",
    "CountOffByOne",
    "CutNames",
    "DimensionsIn32Bits",
    "FooterWithoutHeader",
    "GarbagePadding",
    "LegacyNumbers",
    "LowerCased",
    "MetadataOffsetZero",
    "MinorVersion",
    "Misaligned",
    "NameInCharacters",
    "NoFooter",
    "NoLastPadding",
    "NormalisedNames",
    "PaddedMetadataSize",
    "PaddedTensorSize",
    "ReservedBytes",
    "ReversedDimensions",
    "RoundedMetadata",
    "RowMajorClear",
    "SharedData",
    "SortedAsUtf16",
    "SortedByCase",
    "StrippedZeros",
    "SwappedData",
    "TooNarrow",
    "Unsorted",
]


class Misaligned(Reference):
    """Tensors at multiples of 32 bytes."""

    def places(self, tensors: Sequence[TensorRecord]) -> list[int]:
        """Offsets as GGUF chooses them by default."""
        places, end = [], 0
        for tensor in tensors:
            places.append(end)
            end += -(-len(tensor.data) // 32) * 32
        return places

    def payload(self, tensors: Sequence[TensorRecord]) -> bytes:
        """Each tensor padded to 32 bytes, and the whole to 64."""
        return self.filled(b"".join(one.data.ljust(-(-len(one.data) // 32) * 32, b"\0") for one in tensors))


class Unsorted(Reference):
    """The index in the order in which tensors were added."""

    def ordered(self, tensors: Sequence[TensorRecord]) -> list[TensorRecord]:
        return list(tensors)


class SortedAsUtf16(Reference):
    """Names sorted by their UTF-16 code units."""

    def ordered(self, tensors: Sequence[TensorRecord]) -> list[TensorRecord]:
        return sorted(tensors, key=lambda one: one.name.encode("utf-16-be"))


class SortedByCase(Reference):
    """Names sorted without regard to case."""

    def ordered(self, tensors: Sequence[TensorRecord]) -> list[TensorRecord]:
        return sorted(tensors, key=lambda one: (one.name.casefold(), one.name))


class LowerCased(Reference):
    """Names in lower case."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, name=tensor.name.lower()), place)


class CutNames(Reference):
    """Names cut to 255 bytes, as if their length were one byte."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, name=tensor.name.encode()[:255].decode(errors="ignore")), place)


class NormalisedNames(Reference):
    """Names normalised to NFC, so that an e and an accent become one character."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, name=unicodedata.normalize("NFC", tensor.name)), place)


class StrippedZeros(Reference):
    """Zeros at the end of a tensor removed like padding."""

    def ordered(self, tensors: Sequence[TensorRecord]) -> list[TensorRecord]:
        return [replace(one, data=one.data.rstrip(b"\0")) for one in super().ordered(tensors)]


class CountInAByte(Reference):
    """The number of tensors modulo 256."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return super().header(count % 256, metadata_size, at_index, at_data)


class RoundedMetadata(Reference):
    """Numbers of the metadata rounded to single precision."""

    def metadata_bytes(self, metadata: Mapping[str, Any]) -> bytes:
        rounded = {name: float(f"{one:.7g}") if isinstance(one, float) else one for name, one in metadata.items()}
        return super().metadata_bytes(rounded)


class NameInCharacters(Reference):
    """The name's length in characters instead of bytes."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return struct.pack("<H", len(tensor.name)) + super().entry(tensor, place)[2:]


class ReversedDimensions(Reference):
    """Dimensions in reverse order, as in GGUF."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, shape=tensor.shape[::-1]), place)


class DimensionsIn32Bits(Reference):
    """Dimensions modulo 2**32. In a small file only an empty tensor shows it."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, shape=tuple(size % 2**32 for size in tensor.shape)), place)


class LegacyNumbers(Reference):
    """APR's own quantisations under their old numbers, which GGML uses for other dtypes."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, dtype={128: 8, 129: 9}.get(tensor.dtype, tensor.dtype)), place)


class PaddedTensorSize(Reference):
    """The size of a tensor includes its padding."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(tensor, place)[:-8] + struct.pack("<Q", padded(len(tensor.data)))


class SwappedData(Reference):
    """The index is sorted, the data is in reverse order."""

    def payload(self, tensors: Sequence[TensorRecord]) -> bytes:
        return super().payload(tensors[::-1])


class SharedData(Reference):
    """Tensors with equal bytes are stored once."""

    def places(self, tensors: Sequence[TensorRecord]) -> list[int]:
        places: dict[bytes, int] = {}
        end = 0
        for tensor in tensors:
            if tensor.data not in places:
                places[tensor.data] = end
                end += padded(len(tensor.data))
        return [places[tensor.data] for tensor in tensors]

    def payload(self, tensors: Sequence[TensorRecord]) -> bytes:
        return b"".join(self.filled(data) for data in dict.fromkeys(tensor.data for tensor in tensors))


class AbsoluteOffsets(Reference):
    """Offsets count from the start of the file, in writer and reader."""

    def index(self, tensors: Sequence[TensorRecord], places: Sequence[int], at_data: int) -> bytes:
        return super().index(tensors, [at_data + place for place in places], at_data)

    def start(self, header: Header, offset: int) -> int:
        return offset


class CountOffByOne(Reference):
    """The header counts one tensor too few."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return super().header(max(count - 1, 0), metadata_size, at_index, at_data)


class RowMajorClear(Reference):
    """The row-major flag is not set, as before the flag existed."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return replace(super().header(count, metadata_size, at_index, at_data), flags=0)


class ColumnMajorSet(Reference):
    """Both flags are set, and the reader accepts that."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return replace(super().header(count, metadata_size, at_index, at_data), flags=ROW_MAJOR | COLUMN_MAJOR)

    def check_flags(self, flags: int) -> None:
        """Nothing."""


class ColumnMajorAccepted(Reference):
    """The writer is right; the reader accepts column-major tensors."""

    def check_flags(self, flags: int) -> None:
        """Nothing."""


class PaddedMetadataSize(Reference):
    """The size of the metadata includes its padding."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return super().header(count, padded(metadata_size), at_index, at_data)

    def metadata_of(self, data: bytes, header: Header) -> Mapping[str, Any]:
        """The metadata without the padding."""
        text = data[header.metadata : header.metadata + header.metadata_size].rstrip(b"\0")
        return super().metadata_of(data, replace(header, metadata_size=len(text)))


class MetadataOffsetZero(Reference):
    """The offset of the metadata is 0, and the reader ignores it."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return replace(super().header(count, metadata_size, at_index, at_data), metadata=0)

    def parsed(self, data: bytes) -> Header:
        return replace(super().parsed(data), metadata=64)


class ReservedBytes(Reference):
    """The writer puts a signature into the reserved bytes."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        signature = b"written by us".ljust(20, b"\0")
        return replace(super().header(count, metadata_size, at_index, at_data), reserved=signature)


class MinorVersion(Reference):
    """Version 2.1, and a reader that checks only the major version."""

    def packed(self, header: Header, checksum: int) -> bytes:
        packed = super().packed(header, checksum)
        return packed[:5] + b"\1" + packed[6:]

    def parsed(self, data: bytes) -> Header:
        return super().parsed(data) if data[5:6] == b"\0" else self._later(data)

    def _later(self, data: bytes) -> Header:
        _, _, _, flags, count, metadata, size, index, at_data, checksum, reserved = struct.unpack(HEADER, data[:64])
        self.check_header(data[:64], checksum)
        return Header(count, size, index, at_data, flags, metadata, reserved)


class BigEndianOffset(Reference):
    """One field of the header in big-endian order, in writer and reader."""

    def packed(self, header: Header, checksum: int) -> bytes:
        packed = super().packed(header, checksum)
        return packed[:32] + packed[32:40][::-1] + packed[40:]

    def parsed(self, data: bytes) -> Header:
        header = super().parsed(data)
        return replace(header, data=int.from_bytes(header.data.to_bytes(8, "little"), "big"))


class ChecksumWithItself(Reference):
    """The header's checksum covers all 64 bytes, with its own field set to 0."""

    def header_checksum(self, header: bytes) -> int:
        return zlib.crc32(header[:40] + bytes(4) + header[44:])


class GarbagePadding(Reference):
    """Padding with bytes other than 0."""

    def filled(self, section: bytes) -> bytes:
        return section.ljust(padded(len(section)), b"\xcd")


class NoLastPadding(Reference):
    """The footer directly after the last tensor, without padding."""

    def payload(self, tensors: Sequence[TensorRecord]) -> bytes:
        unused = padded(len(tensors[-1].data)) - len(tensors[-1].data) if tensors else 0
        payload = super().payload(tensors)
        return payload[: len(payload) - unused]

    def check_end(self, end: int, size: int) -> None:
        """Accept a file that is shorter by some padding."""
        if not 0 <= end + 4 - size < 64:
            raise Rejected("the file does not end where its tensors do")


class NoFooter(Reference):
    """The footer is missing."""

    def write(self, file: AprFile) -> bytes:
        return super().write(file)[:-4]


class FooterWithoutHeader(Reference):
    """The footer covers everything but the header, in writer and reader."""

    def footer(self, body: bytes) -> int:
        return zlib.crc32(body[64:])


class CastagnoliFooter(Reference):
    """CRC32C in place of CRC32."""

    def footer(self, body: bytes) -> int:
        crc = 0xFFFFFFFF
        for byte in body:
            crc = _CASTAGNOLI[(crc ^ byte) & 0xFF] ^ crc >> 8
        return crc ^ 0xFFFFFFFF


class AsIfDataWereInOrder(Reference):
    """The reader takes tensors one after the other and ignores their offsets."""

    def tensors(self, data: bytes, header: Header) -> tuple[list[TensorRecord], int]:
        found, place = [], header.data
        for name, dtype, shape, _, size in self.entries(data[header.index : header.data], header.count):
            found.append(TensorRecord(name, dtype, shape, data[place : place + size]))
            place += padded(size)
        return found, place


class TooNarrow(Reference):
    """Refuses metadata of exactly 16 MiB."""

    def metadata_fits(self, size: int) -> bool:
        return super().metadata_fits(size + 1)


def _castagnoli(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CASTAGNOLI = [_castagnoli(byte) for byte in range(256)]
