"""Writers, and readers that agree with them, that depart from the table in one thing each."""

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
    "Unsorted",
]


class Misaligned(Reference):
    """Tensors at multiples of 32."""

    def places(self, tensors: Sequence[TensorRecord]) -> list[int]:
        """As GGUF does by default."""
        places, end = [], 0
        for tensor in tensors:
            places.append(end)
            end += -(-len(tensor.data) // 32) * 32
        return places

    def payload(self, tensors: Sequence[TensorRecord]) -> bytes:
        """Each filled up to 32, and the whole to 64."""
        return self.filled(b"".join(one.data.ljust(-(-len(one.data) // 32) * 32, b"\0") for one in tensors))


class Unsorted(Reference):
    """The index in the order in which tensors were added."""

    def ordered(self, tensors: Sequence[TensorRecord]) -> list[TensorRecord]:
        return list(tensors)


class SortedAsUtf16(Reference):
    """Names in the order of a language whose texts are UTF-16."""

    def ordered(self, tensors: Sequence[TensorRecord]) -> list[TensorRecord]:
        return sorted(tensors, key=lambda one: one.name.encode("utf-16-be"))


class SortedByCase(Reference):
    """Capital and small letters side by side."""

    def ordered(self, tensors: Sequence[TensorRecord]) -> list[TensorRecord]:
        return sorted(tensors, key=lambda one: (one.name.casefold(), one.name))


class LowerCased(Reference):
    """Names made alike on their way into the file."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, name=tensor.name.lower()), place)


class CutNames(Reference):
    """Names of at most 255 bytes, as if their length were one byte."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, name=tensor.name.encode()[:255].decode(errors="ignore")), place)


class NormalisedNames(Reference):
    """Names composed as some file systems do, so that an e with an accent becomes one character."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, name=unicodedata.normalize("NFC", tensor.name)), place)


class StrippedZeros(Reference):
    """Zeros at the end of a tensor taken for padding."""

    def ordered(self, tensors: Sequence[TensorRecord]) -> list[TensorRecord]:
        return [replace(one, data=one.data.rstrip(b"\0")) for one in super().ordered(tensors)]


class CountInAByte(Reference):
    """A count that begins again at 256."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return super().header(count % 256, metadata_size, at_index, at_data)


class RoundedMetadata(Reference):
    """Numbers of the metadata with as many digits as single precision has."""

    def metadata_bytes(self, metadata: Mapping[str, Any]) -> bytes:
        rounded = {name: float(f"{one:.7g}") if isinstance(one, float) else one for name, one in metadata.items()}
        return super().metadata_bytes(rounded)


class NameInCharacters(Reference):
    """The name's length in characters rather than bytes."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return struct.pack("<H", len(tensor.name)) + super().entry(tensor, place)[2:]


class ReversedDimensions(Reference):
    """The fastest dimension first, as GGUF has it."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, shape=tensor.shape[::-1]), place)


class DimensionsIn32Bits(Reference):
    """Each dimension through a number of 32 bits, which only an empty tensor shows in a small file."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, shape=tuple(size % 2**32 for size in tensor.shape)), place)


class LegacyNumbers(Reference):
    """APR's own quantisations under their old numbers, which GGML uses for others."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(replace(tensor, dtype={128: 8, 129: 9}.get(tensor.dtype, tensor.dtype)), place)


class PaddedTensorSize(Reference):
    """The size of a tensor with the padding behind it."""

    def entry(self, tensor: TensorRecord, place: int) -> bytes:
        return super().entry(tensor, place)[:-8] + struct.pack("<Q", padded(len(tensor.data)))


class SwappedData(Reference):
    """The index is sorted, the data is not."""

    def payload(self, tensors: Sequence[TensorRecord]) -> bytes:
        return super().payload(tensors[::-1])


class SharedData(Reference):
    """Tensors with the same bytes are stored once."""

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
    """Offsets from the file's start instead of the data's, written and read."""

    def index(self, tensors: Sequence[TensorRecord], places: Sequence[int], at_data: int) -> bytes:
        return super().index(tensors, [at_data + place for place in places], at_data)

    def start(self, header: Header, offset: int) -> int:
        return offset


class CountOffByOne(Reference):
    """One tensor fewer than there are, in the header."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return super().header(max(count - 1, 0), metadata_size, at_index, at_data)


class RowMajorClear(Reference):
    """No word on the order of dimensions, as before the flag existed."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return replace(super().header(count, metadata_size, at_index, at_data), flags=0)


class ColumnMajorSet(Reference):
    """Both flags, and a reader that takes it."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return replace(super().header(count, metadata_size, at_index, at_data), flags=ROW_MAJOR | COLUMN_MAJOR)

    def check_flags(self, flags: int) -> None:
        """Nothing."""


class ColumnMajorAccepted(Reference):
    """The writer is right, and the reader takes what a bad conversion leaves."""

    def check_flags(self, flags: int) -> None:
        """Nothing."""


class PaddedMetadataSize(Reference):
    """The size of the metadata with its padding."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return super().header(count, padded(metadata_size), at_index, at_data)

    def metadata_of(self, data: bytes, header: Header) -> Mapping[str, Any]:
        """What is in front of the padding."""
        text = data[header.metadata : header.metadata + header.metadata_size].rstrip(b"\0")
        return super().metadata_of(data, replace(header, metadata_size=len(text)))


class MetadataOffsetZero(Reference):
    """The metadata's place left at zero, which a reader of the same make does not miss."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        return replace(super().header(count, metadata_size, at_index, at_data), metadata=0)

    def parsed(self, data: bytes) -> Header:
        return replace(super().parsed(data), metadata=64)


class ReservedBytes(Reference):
    """A writer that signs the bytes which are nobody's."""

    def header(self, count: int, metadata_size: int, at_index: int, at_data: int) -> Header:
        signature = b"written by us".ljust(20, b"\0")
        return replace(super().header(count, metadata_size, at_index, at_data), reserved=signature)


class MinorVersion(Reference):
    """Version 2.1, and a reader that only looks at the first number."""

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
    """One field of the header written the other way round, and read so."""

    def packed(self, header: Header, checksum: int) -> bytes:
        packed = super().packed(header, checksum)
        return packed[:32] + packed[32:40][::-1] + packed[40:]

    def parsed(self, data: bytes) -> Header:
        header = super().parsed(data)
        return replace(header, data=int.from_bytes(header.data.to_bytes(8, "little"), "big"))


class ChecksumWithItself(Reference):
    """The header's checksum over all 64 bytes, its own place zero."""

    def header_checksum(self, header: bytes) -> int:
        return zlib.crc32(header[:40] + bytes(4) + header[44:])


class GarbagePadding(Reference):
    """Padding that was never cleared."""

    def filled(self, section: bytes) -> bytes:
        return section.ljust(padded(len(section)), b"\xcd")


class NoLastPadding(Reference):
    """The footer right behind the last tensor."""

    def payload(self, tensors: Sequence[TensorRecord]) -> bytes:
        unused = padded(len(tensors[-1].data)) - len(tensors[-1].data) if tensors else 0
        payload = super().payload(tensors)
        return payload[: len(payload) - unused]

    def check_end(self, end: int, size: int) -> None:
        """A file may be shorter by some padding."""
        if not 0 <= end + 4 - size < 64:
            raise Rejected("the file does not end where its tensors do")


class NoFooter(Reference):
    """A writer that was interrupted before its last four bytes, or never knew of them."""

    def write(self, file: AprFile) -> bytes:
        return super().write(file)[:-4]


class FooterWithoutHeader(Reference):
    """The checksum of everything but the header, written and read."""

    def footer(self, body: bytes) -> int:
        return zlib.crc32(body[64:])


class CastagnoliFooter(Reference):
    """CRC32C, as newer processors compute it, in place of CRC32."""

    def footer(self, body: bytes) -> int:
        crc = 0xFFFFFFFF
        for byte in body:
            crc = _CASTAGNOLI[(crc ^ byte) & 0xFF] ^ crc >> 8
        return crc ^ 0xFFFFFFFF


class AsIfDataWereInOrder(Reference):
    """A reader that takes tensors one after the other, whatever their offsets say."""

    def tensors(self, data: bytes, header: Header) -> tuple[list[TensorRecord], int]:
        found, place = [], header.data
        for name, dtype, shape, _, size in self.entries(data[header.index : header.data], header.count):
            found.append(TensorRecord(name, dtype, shape, data[place : place + size]))
            place += padded(size)
        return found, place


def _castagnoli(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CASTAGNOLI = [_castagnoli(byte) for byte in range(256)]
