"""Reads GGUF, versions 2 and 3, little-endian (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

This module reads the header itself, because the reader of the package gguf trusts counts and lengths. That reader makes
a numpy view for every element of every array (1 MB took 9.5 s and 0.7 GB with version 0.19), multiplies dimensions
modulo 2**64, and recurses into nested arrays. Types, block sizes and dequantisation come from the package.
"""

from __future__ import annotations

from math import prod
from typing import Any

from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Cursor, Refused
from harness.tools.inspect.checkpoint.dtypes import ggml
from harness.tools.inspect.checkpoint.entries import Contents, Entry, refuse_overlaps

__all__ = ["MAGIC", "read"]

MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SIZES = {"B": 1, "b": 1, "?": 1, "H": 2, "h": 2, "I": 4, "i": 4, "f": 4, "Q": 8, "q": 8, "d": 8}
_STRING, _ARRAY = 8, 9
_KNOWN_VERSIONS = (2, 3)
_DEEPEST_ARRAY = 4
_SHOWN = 16
"""The longest array of the metadata that is kept. Longer ones, such as a vocabulary, are only counted."""
_MOST_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32


def read(source: BoundedFile) -> Contents:
    """Return the tensors in the order of their bytes, and the metadata. A long array becomes its length."""
    cursor = Cursor(source, 4, source.size, "the header")
    (version,) = cursor.unpack("<I")
    if version not in _KNOWN_VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in _KNOWN_VERSIONS
        raise Refused("is big-endian" if swapped else f"is GGUF version {version}; 2 and 3 are known", 4)
    count, keys = cursor.unpack("<QQ")
    metadata: dict[str, Any] = {}
    for _ in range(keys):
        start = cursor.position
        name = _text(cursor)
        if name in metadata:
            raise Refused(f"the key {name!r:.80} occurs twice", start)
        (kind,) = cursor.unpack("<I")
        metadata[name] = _value(cursor, kind)
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise Refused(f"general.alignment is {alignment!r:.40}, which is not a power of two", 0)
    relative = [_entry(cursor) for _ in range(count)]
    data = -(-cursor.position // alignment) * alignment
    entries = []
    for start, entry in relative:
        placed = Entry(entry.name, entry.dtype, entry.shape, data + entry.offset, entry.size)
        if entry.offset % alignment:
            raise Refused(f"the tensor {entry.name!r} is not aligned to {alignment} bytes", start)
        if placed.offset + placed.size > source.size:
            end = placed.offset + placed.size
            raise Refused(f"the tensor {entry.name!r} ends at byte {end}, the file at {source.size}", start)
        entries.append(placed)
    if len({entry.name for entry in entries}) < count:
        raise Refused("two tensors have the same name", 8)
    refuse_overlaps(entries)
    return Contents("GGUF", sorted(entries, key=lambda entry: entry.offset), metadata)


def _text(cursor: Cursor) -> str:
    return cursor.text(cursor.unpack("<Q")[0])


def _value(cursor: Cursor, kind: int, depth: int = 0) -> Any:
    """Return one value of the metadata. A long array becomes a text with its length."""
    if form := _SCALARS.get(kind):
        # struct's `?` accepts any byte as a bool.
        return cursor.unpack("<" + form)[0]
    if kind == _STRING:
        # A vocabulary may hold parts of UTF-8 characters. A name may not.
        return cursor.bytes(cursor.unpack("<Q")[0]).decode("utf-8", "backslashreplace")
    if kind != _ARRAY:
        raise Refused(f"the metadata has a value of the unknown type {kind}", cursor.position - 4)
    if depth == _DEEPEST_ARRAY:
        raise Refused(f"the metadata nests arrays deeper than {_DEEPEST_ARRAY}", cursor.position)
    inner, length = cursor.unpack("<IQ")
    if length > _SHOWN and inner in _SCALARS:
        cursor.skip(length * _SIZES[_SCALARS[inner]])
    elif length > _SHOWN:
        # An element has at least the eight bytes of its length, so the loop ends at the end of the file.
        for _ in range(length):
            if inner == _STRING:
                cursor.skip(cursor.unpack("<Q")[0])
            else:
                _value(cursor, inner, depth + 1)
    else:
        return [_value(cursor, inner, depth + 1) for _ in range(length)]
    return f"array of {length}"


def _entry(cursor: Cursor) -> tuple[int, Entry]:
    """Return the place of a tensor's description, and the tensor. Its offset counts from the start of the data."""
    start = cursor.position
    name = _text(cursor)
    (dimensions,) = cursor.unpack("<I")
    if dimensions > _MOST_DIMENSIONS:
        raise Refused(f"the tensor {name!r:.80} has {dimensions} dimensions, GGML has at most 4", start)
    # GGML lists the fastest dimension first.
    shape = cursor.unpack(f"<{dimensions}Q")[::-1]
    number, offset = cursor.unpack("<IQ")
    dtype = ggml(number)
    if dtype is None:
        raise Refused(f"the tensor {name!r:.80} has the unknown type {number}", start)
    if shape and shape[-1] % dtype.block:
        raise Refused(f"rows of {shape[-1]} elements in {name!r:.80} are no whole blocks of {dtype.name}", start)
    size = dtype.nbytes(prod(shape))
    if size is None:
        raise Refused(f"the tensor {name!r:.80} is no whole number of blocks of {dtype.name}", start)
    return start, Entry(name, dtype, shape, offset, size)
