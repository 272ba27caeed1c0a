"""Reads PyTorch's zip format: a pickle that describes how tensors view storages, and one member for each storage.

Nothing is unpickled: `weights_pickle` reads the opcodes. Nothing is decompressed: PyTorch stores its members without
compression, so a compressed one is refused. Storages are read by their offset in the file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from math import prod

from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Packed, Refused, Unrecognized
from harness.tools.inspect.checkpoint.entries import Contents, Entry
from harness.tools.inspect.checkpoint.formats import weights_pickle
from harness.tools.inspect.checkpoint.formats.weights_pickle import TensorView
from harness.tools.inspect.checkpoint.formats.zip_members import Member, stored, verify

__all__ = ["read"]

_NO_CHECKSUMS = (
    "no CRC32 was written, as after torch.serialization.set_crc32_options(False): flipped bits cannot be detected"
)


def read(source: BoundedFile, directory: list[zipfile.ZipInfo]) -> Contents:
    """Return the tensors of the pickled object, named by their paths in it; its numbers and texts are metadata."""
    if any(zip_info.filename.endswith("/constants.pkl") for zip_info in directory):
        raise Refused("is a TorchScript archive, which holds code; save its state_dict() instead", 0)
    if not any(_is_pickle(zip_info.filename) for zip_info in directory):
        if any(zip_info.compress_type != zipfile.ZIP_STORED for zip_info in directory):
            raise Packed("is a zip archive and not a checkpoint; unpack it and name one of its files", 0)
        raise Unrecognized("is a zip archive without FOLDER/data.pkl of PyTorch or NAME.npy of NumPy", 0)
    members = stored(source, directory, "PyTorch")
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
            verify(source, name, member)
    pickled = members[f"{folder}/data.pkl"]
    contents = weights_pickle.read(source.kept(pickled.offset, pickled.size, "data.pkl"), pickled.offset, source.budget)
    entries = [_entry(view, members, folder, pickled.offset) for view in contents.tensors]
    return Contents("PyTorch zip", entries, contents.metadata, () if checked else (_NO_CHECKSUMS,))


def _is_pickle(name: str) -> bool:
    """Whether a member has the name that PyTorch gives the pickle with the tensors' shapes."""
    return name.endswith("/data.pkl") and name.count("/") == 1


def _entry(view: TensorView, members: Mapping[str, Member], folder: str, at: int) -> Entry:
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
