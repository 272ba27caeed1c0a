"""An independent implementation of the APR v2 table, with which the falsifiers build and check files.

It shares no code with the subjects. Offset and width of every number are those of aprender-core
(crates/aprender-core/src/format/v2: header_impl.rs, tensor_index, writer.rs), little-endian:

| offset | bytes | field |
|---|---|---|
| 0 | 4 | `APR` and a zero |
| 4 | 2 | version 2, 0 |
| 6 | 2 | flags; bit 10 row-major, bit 11 column-major |
| 8 | 4 | number of tensors |
| 12 | 8 | offset of the metadata: 64 |
| 20 | 4 | bytes of the metadata, without its padding |
| 24 | 8 | offset of the tensor index |
| 32 | 8 | offset of the data |
| 40 | 4 | CRC32 of bytes 0 to 39 and 44 to 63 |
| 44 | 20 | zeros |

After the header follow JSON metadata, index and tensors, each padded to 64 bytes with zeros, and the CRC32 of all
bytes before it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from falsifiers.apr.subject import AprFile, TensorRecord

_FIELDS = {
    "magic": (0, 4), "version": (4, 2), "flags": (6, 2), "tensor_count": (8, 4), "metadata_offset": (12, 8),
    "metadata_size": (20, 4), "tensor_index_offset": (24, 8), "data_offset": (32, 8), "checksum": (40, 4),
    "reserved": (44, 20),
}  # fmt: skip
ROW_MAJOR = 0x0400
COLUMN_MAJOR = 0x0800


class Malformed(ValueError):
    """A file in which the table's fields cannot be found; the text names the field."""


@dataclass(frozen=True)
class Entry:
    """One entry of the tensor index. `offset` counts from the start of the file."""

    name: bytes
    dtype: int
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True)
class Layout:
    """The byte ranges of a file's parts; ranges are half-open."""

    metadata: tuple[int, int]
    index: tuple[int, int]
    data: int
    entries: tuple[Entry, ...]
    end: int
    """The offset of the footer."""

    @classmethod
    def of(cls, data: bytes) -> Layout:
        """Find the fields of a file.

        Raises:
            Malformed: a field lies outside of the file.
        """
        header = {name: _number(data, *place) for name, place in _FIELDS.items() if place[1] <= 8}
        end = len(data) - 4
        at_metadata, at_index, at_data = (
            header[name] for name in ("metadata_offset", "tensor_index_offset", "data_offset")
        )
        metadata_end = at_metadata + header["metadata_size"]
        if not 64 <= at_metadata <= metadata_end <= at_index <= at_data <= end:
            raise Malformed("the sections do not follow each other")
        entries, position = [], at_index
        for _ in range(min(header["tensor_count"], end)):
            entry, position = _entry(data[:at_data], position, at_data)
            entries.append(entry)
        return cls((at_metadata, metadata_end), (at_index, position), at_data, tuple(entries), end)

    def padding(self) -> Iterator[tuple[int, int]]:
        """The ranges between the sections and after the tensors."""
        yield self.metadata[1], self.index[0]
        yield self.index[1], self.data
        place = self.data
        for entry in sorted(self.entries, key=lambda entry: (entry.offset, entry.size)):
            yield place, entry.offset
            place = entry.offset + entry.size
        yield place, self.end


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise Malformed(f"the file ends before byte {at + width}")
    return int.from_bytes(data[at : at + width], "little")


def _entry(index: bytes, at: int, data: int) -> tuple[Entry, int]:
    length = _number(index, at, 2)
    name = index[at + 2 : at + 2 + length]
    at += 2 + length
    dtype, dimensions = _number(index, at, 1), _number(index, at + 1, 1)
    shape = tuple(_number(index, at + 2 + 8 * k, 8) for k in range(dimensions))
    at += 2 + 8 * dimensions
    return Entry(name, dtype, shape, data + _number(index, at, 8), _number(index, at + 8, 8)), at + 16


def build(file: AprFile, order: Sequence[int] | None = None) -> bytes:
    """A file according to the table. `order` is the order of the tensors' data, as a streaming writer may choose it."""
    tensors = sorted(file.tensors, key=lambda tensor: tensor.name.encode())
    offsets, data = [0] * len(tensors), b""
    for place in order if order is not None else range(len(tensors)):
        offsets[place] = len(data)
        data += _padded(tensors[place].data)
    index = b"".join(_indexed(tensor, offset) for tensor, offset in zip(tensors, offsets, strict=True))
    metadata = json.dumps(dict(file.metadata), ensure_ascii=False).encode()
    sections = _padded(metadata), _padded(index)
    header = bytearray(64)
    values = {
        "magic": int.from_bytes(b"APR\0", "little"),
        "version": 2,
        "flags": ROW_MAJOR,
        "tensor_count": len(tensors),
        "metadata_offset": 64,
        "metadata_size": len(metadata),
        "tensor_index_offset": 64 + len(sections[0]),
        "data_offset": 64 + len(sections[0]) + len(sections[1]),
    }
    for name, number in values.items():
        at, width = _FIELDS[name]
        header[at : at + width] = number.to_bytes(width, "little")
    return reseal(bytes(header) + b"".join(sections) + data + bytes(4))


def reseal(data: bytes) -> bytes:
    """The file with both checksums corrected."""
    body = bytearray(data[:-4])
    body[40:44] = zlib.crc32(bytes(body[:40] + body[44:64])).to_bytes(4, "little")
    return bytes(body) + zlib.crc32(bytes(body)).to_bytes(4, "little")


def patched(data: bytes, at: int, piece: bytes) -> bytes:
    """The file with other bytes at a place, and both checksums corrected."""
    return reseal(data[:at] + piece + data[at + len(piece) :])


def _padded(section: bytes) -> bytes:
    return section + bytes(-len(section) % 64)


def _indexed(tensor: TensorRecord, offset: int) -> bytes:
    name = tensor.name.encode()
    numbers = [(len(name), 2)], [(tensor.dtype, 1), (len(tensor.shape), 1), *((size, 8) for size in tensor.shape)]
    before, after = (b"".join(number.to_bytes(width, "little") for number, width in part) for part in numbers)
    return before + name + after + offset.to_bytes(8, "little") + len(tensor.data).to_bytes(8, "little")


def departures(data: bytes, file: AprFile) -> dict[str, list[str]]:
    """The differences between a file and the table, by section. `file` holds the intended content.

    The sections are `header`, `metadata`, `index`, `alignment`, `padding`, `payload` and `footer`; each has a list of
    differences.
    """
    wrong: dict[str, list[str]] = {
        name: [] for name in ("header", "metadata", "index", "alignment", "padding", "payload", "footer")
    }
    wrong["header"] = list(_in_header(data, file))
    if data[-4:] != zlib.crc32(data[:-4]).to_bytes(4, "little"):
        wrong["footer"].append("checksum")
    try:
        layout = Layout.of(data)
    except Malformed as error:
        wrong["index"].append(str(error))
        return wrong
    wrong["metadata"] = list(_in_metadata(data[slice(*layout.metadata)], file))
    wrong["index"] = list(_in_index(layout, file))
    wrong["alignment"] = list(_in_alignment(layout))
    wrong["padding"] = [f"bytes {start} to {end}" for start, end in layout.padding() if any(data[start:end])]
    written = {tensor.name.encode(): tensor.data for tensor in file.tensors}
    for entry in layout.entries:
        if data[entry.offset : entry.offset + entry.size] != written.get(entry.name):
            wrong["payload"].append(entry.name.decode(errors="replace"))
    return wrong


def _in_header(data: bytes, file: AprFile) -> Iterator[str]:
    header = data[:64].ljust(64, b"\0")
    metadata_size = int.from_bytes(header[20:24], "little")
    at_index = int.from_bytes(header[24:32], "little")
    index_size = sum(len(_indexed(tensor, 0)) for tensor in file.tensors)
    expected = {
        "magic": b"APR\0",
        "version": b"\2\0",
        "flags": ROW_MAJOR.to_bytes(2, "little"),
        "tensor_count": len(file.tensors).to_bytes(4, "little"),
        "metadata_offset": (64).to_bytes(8, "little"),
        # The writer chooses the length of the JSON. The next section must follow its padding.
        "tensor_index_offset": (64 + metadata_size + -metadata_size % 64).to_bytes(8, "little"),
        "data_offset": (at_index + index_size + -index_size % 64).to_bytes(8, "little", signed=False),
        "checksum": zlib.crc32(header[:40] + header[44:]).to_bytes(4, "little"),
        "reserved": bytes(20),
    }
    for name, right in expected.items():
        at, width = _FIELDS[name]
        if header[at : at + width] != right:
            yield name


def _in_metadata(text: bytes, file: AprFile) -> Iterator[str]:
    try:
        if json.loads(text.decode()) != dict(file.metadata):
            yield "values"
    except (ValueError, RecursionError):
        yield "no JSON"
    if text != text.strip(b"\0 "):
        yield "padding counted"


def _in_index(layout: Layout, file: AprFile) -> Iterator[str]:
    names = [entry.name for entry in layout.entries]
    if names != sorted(names):
        yield "order"
    by_name = {entry.name: (entry.dtype, entry.shape, entry.size) for entry in layout.entries}
    written = {tensor.name.encode(): (tensor.dtype, tensor.shape, len(tensor.data)) for tensor in file.tensors}
    if sorted(names) != sorted(written):
        yield "names"
    for field, number in (("dtype", 0), ("shape", 1), ("size", 2)):
        if any(by_name[name][number] != written[name][number] for name in by_name.keys() & written.keys()):
            yield field


def _in_alignment(layout: Layout) -> Iterator[str]:
    places = {"index": layout.index[0], "data": layout.data, "footer": layout.end}
    yield from (f"{name} at {place}" for name, place in places.items() if place % 64)
    end = layout.data
    for entry in sorted(layout.entries, key=lambda entry: (entry.offset, entry.size)):
        if entry.offset != end:
            # Tensors follow each other in any order, each padded to 64 bytes.
            yield f"{entry.name.decode(errors='replace')} at {entry.offset} instead of {end}"
        end = max(end, entry.offset + entry.size + -entry.size % 64)
    if end != layout.end:
        yield f"the data ends at {end}, the footer is at {layout.end}"
