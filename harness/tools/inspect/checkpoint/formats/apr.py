"""Reads APR v2: a header of 64 bytes, JSON metadata, a tensor index, the tensors, and a CRC32 over all of them.

The layout is that of aprender-core, crates/aprender-core/src/format/v2. aprender's own reader checks only the header's
CRC32. This one checks the footer's too. A departure that does not prevent reading, such as names that are not sorted,
is a remark.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from harness.base import strictjson
from harness.base.shortening import first
from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Cursor, Refused, read_json
from harness.tools.inspect.checkpoint.dtypes import APR_Q4, APR_Q8, BY_NAME, DType, ggml
from harness.tools.inspect.checkpoint.entries import Contents, Entry, refuse_overlaps

__all__ = ["MAGIC", "read"]

MAGIC = b"APR\0"
_HEADER = "<4s2BHIQIQQI20s"
_HEADER_SIZE = 64
_FOOTER_SIZE = 4
_ALIGNMENT = 64
_LARGEST_METADATA = 16 << 20
_LONGEST_NAME = 256
_MOST_DIMENSIONS = 8
_UNREADABLE = {0: "compressed with LZ4", 1: "compressed with Zstandard", 2: "encrypted"}
_SHARDED, _ROW_MAJOR, _COLUMN_MAJOR, _KNOWN_FLAGS = 1 << 4, 1 << 10, 1 << 11, 0x0FFF
_PLAIN = {0: "F32", 1: "F16", 3: "F64", 4: "I32", 5: "I64", 6: "I8", 7: "U8", 30: "BF16"}
_LEGACY = {8: APR_Q4, 9: APR_Q8}
_DTYPES = {number: BY_NAME[name] for number, name in _PLAIN.items()} | _LEGACY | {128: APR_Q4, 129: APR_Q8}
_GGML = {12, 14}  # Q4_K and Q6_K, by GGML's own numbers


def read(source: BoundedFile) -> Contents:
    """Return the tensors in the order of the index, the JSON metadata, and departures from the layout as remarks."""
    fields = source.unpack(_HEADER, 0, "the header")
    _, major, minor, flags, count, metadata_at, metadata_size, index_at, data_at, checksum, reserved = fields
    if (major, minor) != (2, 0):
        raise Refused(f"is APR version {major}.{minor}; only 2.0 is known", 4)
    header = source.read(0, _HEADER_SIZE, "the header")
    _compare(zlib.crc32(header[:40] + header[44:]), checksum, "the header", 40)
    for bit, how in _UNREADABLE.items():
        if flags >> bit & 1:
            raise Refused(f"the tensors are {how}; write the file again as plain tensors", 6)
    if flags & _COLUMN_MAJOR:
        raise Refused("the flags say column-major, which the format rejects", 6)
    if metadata_size > _LARGEST_METADATA:
        raise Refused(f"the metadata would be {metadata_size} bytes long, the format allows {_LARGEST_METADATA}", 20)
    end = source.size - _FOOTER_SIZE
    sections = (_HEADER_SIZE, metadata_at, metadata_at + metadata_size, index_at, data_at, end)
    if any(after < before for before, after in pairwise(sections)):
        raise Refused(
            f"metadata at {metadata_at} of {metadata_size} bytes, index at {index_at} and data at {data_at} do not "
            f"follow each other inside a file of {source.size} bytes",
            12,
        )
    index = Cursor(source, index_at, data_at, "the tensor index")
    entries = [_entry(index, data_at, end) for _ in range(count)]
    if len({entry.name for entry in entries}) < count:
        raise Refused("two tensors have the same name", index_at)
    refuse_overlaps(entries)
    checked = 0
    for chunk in source.chunks(0, end, "the file"):
        checked = zlib.crc32(chunk, checked)
    _compare(checked, source.unpack("<I", end, "the footer")[0], "the file", end)
    try:
        metadata = read_json(source, metadata_at, metadata_size, "the metadata") if metadata_size else {}
    except strictjson.JsonError as error:
        raise Refused(f"the metadata is not strict JSON: {error}", metadata_at) from error
    if not isinstance(metadata, dict):
        raise Refused("the metadata is not a JSON object", metadata_at)
    remarks = [*_remarks(flags, reserved, metadata_at), *_misplaced(entries, index_at, data_at)]
    used = max((entry.offset + entry.size for entry in entries), default=data_at)
    if end - used >= _ALIGNMENT:
        remarks.append(f"{end - used} bytes after the last tensor belong to none")
    return Contents("APR v2", entries, metadata, remarks)


def _entry(index: Cursor, data_at: int, data_end: int) -> Entry:
    start = index.position
    (length,) = index.unpack("<H")
    if length > _LONGEST_NAME:
        raise Refused(f"a tensor's name would be {length} bytes long, the format allows {_LONGEST_NAME}", start)
    name = index.text(length)
    number, dimensions = index.unpack("<BB")
    dtype = _dtype(number)
    if dtype is None:
        raise Refused(f"the tensor {name!r} has the unknown dtype {number}", index.position - 2)
    if dimensions > _MOST_DIMENSIONS:
        raise Refused(f"the tensor {name!r} has {dimensions} dimensions, the format allows 8", index.position - 1)
    shape = index.unpack(f"<{dimensions}Q")
    offset, size = index.unpack("<QQ")
    entry = Entry(name, dtype, shape, data_at + offset, size)
    if size != dtype.nbytes(entry.elements):
        if size and shape and size == prod(shape[:-1]) * (dtype.nbytes(shape[-1]) or 0):
            # Each row ends in a block of its own. Padding in it is no number of the tensor, so nothing is decoded.
            entry = replace(entry, dtype=replace(dtype, decode=None))
        # aprender writes no bytes for a head that is tied to the embedding. This placeholder becomes a finding.
        elif size:
            raise Refused(f"the tensor {name!r} has {size} bytes for {entry.elements} elements of {dtype.name}", start)
    if entry.offset + size > data_end:
        raise Refused(f"the tensor {name!r} ends at byte {entry.offset + size}, the data at {data_end}", start)
    return entry


def _dtype(number: int) -> DType | None:
    if number in _GGML:
        whole_blocks = ggml(number)
        return whole_blocks and replace(whole_blocks, partial=True)
    return _DTYPES.get(number)


def _compare(computed: int, stored: int, what: str, offset: int) -> None:
    if computed != stored:
        raise Refused(f"the CRC32 of {what} is {computed:08x}, and {stored:08x} is stored: it is corrupt", offset)


def _remarks(flags: int, reserved: bytes, metadata_at: int) -> Iterator[str]:
    if not flags & _ROW_MAJOR:
        yield "the flag for row-major is not set, as in files from before it existed"
    if flags & _SHARDED:
        yield "the flags say that this file is one of several"
    if flags & ~_KNOWN_FLAGS:
        yield f"unknown flags are set: {flags & ~_KNOWN_FLAGS:#06x}"
    if any(reserved):
        yield "reserved bytes of the header are not zero"
    if metadata_at != _HEADER_SIZE:
        yield f"the metadata begins at byte {metadata_at} instead of {_HEADER_SIZE}"


def _misplaced(entries: Sequence[Entry], index_at: int, data_at: int) -> Iterator[str]:
    names = [entry.name.encode() for entry in entries]
    if names != sorted(names):
        yield "the tensor index is not sorted by name"
    crooked = [f"the {what} at {at}" for what, at in (("index", index_at), ("data", data_at)) if at % _ALIGNMENT]
    crooked += [f"{entry.name!r} at {entry.offset}" for entry in entries if entry.offset % _ALIGNMENT]
    if crooked:
        yield f"not aligned to {_ALIGNMENT} bytes: {first(crooked, 3)}"
