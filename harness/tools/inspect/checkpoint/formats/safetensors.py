"""Reads safetensors: a length, a JSON header, and the tensors' bytes without gaps.

The rules are those of https://github.com/huggingface/safetensors (README, "Format").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.base import strictjson
from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Refused, read_json
from harness.tools.inspect.checkpoint.dtypes import BY_NAME
from harness.tools.inspect.checkpoint.entries import Contents, Entry

__all__ = ["read"]

_LONGEST_HEADER = 100_000_000
_FIELDS = {"dtype", "shape", "data_offsets"}


def read(source: BoundedFile) -> Contents:
    """Return the tensors in the order of their bytes, and the string metadata."""
    (length,) = source.unpack("<Q", 0, "the header's length")
    if length > _LONGEST_HEADER:
        raise Refused(f"the header would be {length} bytes long, and the format allows {_LONGEST_HEADER}", 0)
    try:
        header = read_json(source, 8, length, "the header")
    except strictjson.JsonError as error:
        raise Refused(f"the header is not strict JSON: {error}", 8) from error
    if not isinstance(header, dict):
        raise Refused("the header is not a JSON object", 8)
    metadata = header.pop("__metadata__", {})
    if not (isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())):
        raise Refused("__metadata__ is not an object of strings", 8)
    data = 8 + length
    entries = sorted(
        (_entry(name, fields, data) for name, fields in header.items()), key=lambda entry: (entry.offset, entry.size)
    )
    end = data
    for entry in entries:
        if entry.offset != end:
            raise Refused(
                f"the tensor {entry.name!r} does not begin at byte {end}",
                min(end, source.size),
            )
        end += entry.size
    if end != source.size:
        raise Refused(f"the tensors end at byte {end}, the file at byte {source.size}", min(end, source.size))
    return Contents("safetensors", entries, metadata)


def _entry(name: str, fields: Any, data: int) -> Entry:
    if not isinstance(fields, Mapping) or fields.keys() != _FIELDS:
        raise Refused(f"the tensor {name!r} is not described by exactly dtype, shape and data_offsets", 8)
    dtype = BY_NAME.get(fields["dtype"]) if isinstance(fields["dtype"], str) else None
    if dtype is None:
        raise Refused(f"the tensor {name!r} has the unknown dtype {fields['dtype']!r:.40}", 8)
    shape, offsets = fields["shape"], fields["data_offsets"]
    if not (_counts(shape) and _counts(offsets) and len(offsets) == 2):
        raise Refused(f"shape or data_offsets of the tensor {name!r} is not a list of counts", 8)
    entry = Entry(name, dtype, tuple(shape), data + offsets[0], offsets[1] - offsets[0])
    if dtype.nbytes(entry.elements) != entry.size:
        raise Refused(f"the tensor {name!r} has {entry.size} bytes for {entry.elements} elements of {dtype.name}", 8)
    return entry


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 1 << 64 for number in value)
