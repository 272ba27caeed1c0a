"""Reads PyTorch's zip format: a pickle that describes how tensors view storages, and one member for each storage.

Nothing is unpickled: `weights_pickle` reads the opcodes. Nothing is decompressed: PyTorch stores its members without
compression, so a compressed one is refused. Storages are read by their offset in the file.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Packed, Refused, Unrecognized
from harness.tools.inspect.checkpoint.entries import Contents, Entry
from harness.tools.inspect.checkpoint.formats import weights_pickle
from harness.tools.inspect.checkpoint.formats.weights_pickle import TensorView

__all__ = ["MAGIC", "read"]

MAGIC = b"PK\x03\x04"
_END = b"PK\x05\x06"
_LONGEST_END = 22 + 0xFFFF
"""Bytes of the record at an archive's end, with the longest comment after it."""
_LOCAL_HEADER = "<4s5H3I2H"
_LOCAL_HEADER_SIZE = 30
_ENCRYPTED = 1
_PER_RECORD = 16
"""Bytes of memory for each byte of the directory. A record of 46 bytes becomes an object of up to 700."""
_NO_CHECKSUMS = (
    "no CRC32 was written, as after torch.serialization.set_crc32_options(False): flipped bits cannot be detected"
)


@dataclass(frozen=True)
class _Member:
    """Where a stored member lies in the file, in bytes, and its CRC32."""

    offset: int
    size: int
    crc: int


def read(source: BoundedFile) -> Contents:
    """Return the tensors of the pickled object, named by their paths in it; its numbers and texts are metadata."""
    members = _members(source)
    folders = [name.removesuffix("/data.pkl") for name in members if _is_pickle(name)]
    if len(folders) != 1:
        raise Refused("is a zip archive with more than one data.pkl; PyTorch writes one", 0)
    (folder,) = folders
    order = members.get(f"{folder}/byteorder")
    if order is not None and source.read(order.offset, min(order.size, 16), "the byte order") != b"little":
        raise Refused("its storages are not little-endian", order.offset)
    checked = any(member.crc for member in members.values())
    if checked:
        for name, member in members.items():
            _verify(source, name, member)
    pickled = members[f"{folder}/data.pkl"]
    found = weights_pickle.read(source.kept(pickled.offset, pickled.size, "data.pkl"), pickled.offset, source.budget)
    entries = [_entry(view, members, folder, pickled.offset) for view in found.tensors]
    return Contents("PyTorch zip", entries, found.metadata, () if checked else (_NO_CHECKSUMS,))


def _members(source: BoundedFile) -> dict[str, _Member]:
    """Return the archive's members by name, each stored, unencrypted, and inside the file."""
    try:
        with source.paid(_PER_RECORD) as file, zipfile.ZipFile(file) as archive:
            listed = archive.infolist()
    except zipfile.BadZipFile as error:
        tail = min(source.size, _LONGEST_END)
        if _END not in source.read(source.size - tail, tail, "the end of the file"):
            raise Refused("has no zip directory at its end: it is cut short", source.size) from error
        raise Refused(f"its zip directory cannot be read: {error}", source.size) from error
    except (OSError, ValueError, OverflowError, NotImplementedError, struct.error) as error:
        raise Refused(f"its zip directory cannot be read: {error}", source.size) from error
    if any(one.filename.endswith("/constants.pkl") for one in listed):
        raise Refused("is a TorchScript archive, which holds code; save its state_dict() instead", 0)
    if not any(_is_pickle(one.filename) for one in listed):
        if any(one.compress_type != zipfile.ZIP_STORED for one in listed):
            raise Packed("is a zip archive and not a checkpoint; unpack it and name one of its files", 0)
        raise Unrecognized("is a zip archive without FOLDER/data.pkl, which PyTorch writes", 0)
    members: dict[str, _Member] = {}
    for one in listed:
        source.budget.work(8)
        header = source.unpack(_LOCAL_HEADER, one.header_offset, "a member's local header")
        if one.filename in members:
            raise Refused(f"two members are named {one.filename!r:.80}", one.header_offset)
        if one.compress_type != zipfile.ZIP_STORED or one.compress_size != one.file_size:
            raise Refused(f"the member {one.filename!r:.80} is compressed, which PyTorch never does", one.header_offset)
        if one.flag_bits & _ENCRYPTED:
            raise Refused(f"the member {one.filename!r:.80} is encrypted", one.header_offset)
        if header[0] != MAGIC:
            raise Refused(f"no member begins where the directory says {one.filename!r:.80} does", one.header_offset)
        offset = one.header_offset + _LOCAL_HEADER_SIZE + header[-2] + header[-1]
        source.bound(offset, one.file_size, f"the member {one.filename!r:.80}")
        members[one.filename] = _Member(offset, one.file_size, one.CRC)
    ordered = sorted(members.items(), key=lambda item: item[1].offset)
    for (before, member), (name, after) in pairwise(ordered):
        if member.offset + member.size > after.offset:
            raise Refused(f"the members {before!r:.80} and {name!r:.80} overlap", after.offset)
    return members


def _is_pickle(name: str) -> bool:
    """Whether a member has the name that PyTorch gives the pickle with the tensors' shapes."""
    return name.endswith("/data.pkl") and name.count("/") == 1


def _verify(source: BoundedFile, name: str, member: _Member) -> None:
    computed = 0
    for chunk in source.chunks(member.offset, member.size, name):
        computed = zlib.crc32(chunk, computed)
    if computed != member.crc:
        raise Refused(
            f"the CRC32 of {name!r:.80} is {computed:08x}, and {member.crc:08x} is stored: it is corrupt", member.offset
        )


def _entry(view: TensorView, members: Mapping[str, _Member], folder: str, at: int) -> Entry:
    storage = members.get(f"{folder}/data/{view.storage.key}")
    if storage is None:
        raise Refused(f"the storage {view.storage.key!r:.40} of the tensor {view.name!r:.80} is missing", at)
    if storage.size != view.storage.nbytes:
        raise Refused(
            f"the storage {view.storage.key!r:.40} has {storage.size} bytes, the pickle says {view.storage.nbytes}",
            storage.offset,
        )
    item = view.dtype.block_bytes
    elements = prod(view.shape)
    last = sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)) if elements else -1
    start, size = view.first * item, (last + 1) * item
    if start + size > storage.size:
        raise Refused(f"the tensor {view.name!r:.80} reaches past the end of its storage", storage.offset)
    row_major = not elements or (elements == last + 1 and all(one == other for one, other in _strides(view)))
    return Entry(view.name, view.dtype, view.shape, storage.offset + start, size, None if row_major else view.strides)


def _strides(view: TensorView) -> Iterator[tuple[int, int]]:
    """Yield each stride with that of a row-major tensor, for every dimension of more than one element."""
    expected = 1
    for size, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if size != 1:
            yield stride, expected
        expected *= size
