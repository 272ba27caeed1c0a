"""Reads NumPy's npz format: a zip archive with a file of the npy format for each array (numpy.lib.format).

Nothing is unpickled: arrays of objects are refused. Nothing is decompressed: `numpy.savez` stores its members.
"""

from __future__ import annotations

import ast
import zipfile
from typing import Any

import numpy as np

from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Refused
from harness.tools.inspect.checkpoint.dtypes import BY_NAME, DType
from harness.tools.inspect.checkpoint.entries import MOST_DIMENSIONS, Contents, Entry
from harness.tools.inspect.checkpoint.formats.zip_members import Member, stored, verify

__all__ = ["is_npz", "read"]

_SUFFIX = ".npy"
_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 10_000
"""As numpy.load accepts, too."""
_DTYPES: dict[np.dtype[Any], DType] = {
    dtype.numpy: dtype
    for dtype in BY_NAME.values()
    if dtype.numpy is not None and dtype.numpy.kind != "V" and dtype.name != "BOOL"
}
_DTYPES[np.dtype(bool)] = BY_NAME["BOOL"]


def is_npz(directory: list[zipfile.ZipInfo]) -> bool:
    """Whether each member of an archive is an array."""
    return bool(directory) and all(zip_info.filename.endswith(_SUFFIX) for zip_info in directory)


def read(source: BoundedFile, directory: list[zipfile.ZipInfo]) -> Contents:
    """Return the arrays, by the names under which they were saved."""
    members = stored(source, directory, "numpy.savez")
    for name, member in members.items():
        verify(source, name, member)
    return Contents("NumPy npz", [_entry(source, name, member) for name, member in members.items()])


def _entry(source: BoundedFile, name: str, member: Member) -> Entry:
    named, at = name.removesuffix(_SUFFIX), member.offset
    if member.size < 10 or source.read(at, 6, name) != _MAGIC:
        raise Refused(f"{name!r:.80} does not begin as an npy file does", at)
    (major,) = source.unpack("<B", at + 6, name)
    length_format, begin = ("<H", 10) if major == 1 else ("<I", 12)
    if member.size < begin:
        raise Refused(f"{name!r:.80} is cut short", at)
    (length,) = source.unpack(length_format, at + 8, name)
    if length > min(_LONGEST_HEADER, member.size - begin):
        raise Refused(f"the header of {name!r:.80} has {length} bytes", at)
    dtype, shape, by_columns = _header(source.read(at + begin, length, name), named, at)
    offset, size = at + begin + length, member.size - begin - length
    entry = Entry(named, dtype, shape, offset, size, None)
    if dtype.nbytes(entry.elements) != size:
        raise Refused(f"the array {named!r:.80} of shape {shape} has {size} bytes", offset)
    return Entry(named, dtype, shape, offset, size, _strides(shape)) if by_columns and entry.elements else entry


def _header(text: bytes, name: str, at: int) -> tuple[DType, tuple[int, ...], bool]:
    """Dtype, shape, and whether the first dimension is the fastest."""
    try:
        header = ast.literal_eval(text.decode("latin-1").strip())
        descr, shape, by_columns = header["descr"], header["shape"], header["fortran_order"]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise Refused(f"the header of {name!r:.80} is no dictionary of NumPy's", at) from error
    is_shape = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if not is_shape or len(shape) > MOST_DIMENSIONS or type(by_columns) is not bool:
        raise Refused(f"the header of {name!r:.80} states no shape", at)
    try:
        dtype = _DTYPES.get(np.dtype(descr)) if isinstance(descr, str) else None
    except TypeError:
        dtype = None
    if dtype is None:
        raise Refused(f"the array {name!r:.80} has dtype {descr!r:.40}, whose bytes are no little-endian numbers", at)
    return dtype, shape, by_columns


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in shape:
        strides.append(step)
        step *= size
    return tuple(strides)
