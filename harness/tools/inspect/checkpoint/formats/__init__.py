"""One reader for each format, chosen by the first bytes of the file.

A reader is a function from `BoundedFile` to `Contents`.
"""

from __future__ import annotations

from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Packed, Refused, Unrecognized
from harness.tools.inspect.checkpoint.entries import Contents
from harness.tools.inspect.checkpoint.formats import apr, gguf, npz, safetensors, torch_zip, zip_members

__all__ = ["read"]


def _zip(source: BoundedFile) -> Contents:
    """A zip archive of NumPy or of PyTorch."""
    directory = zip_members.listed(source)
    return npz.read(source, directory) if npz.is_npz(directory) else torch_zip.read(source, directory)


_BY_MAGIC = {apr.MAGIC: apr.read, gguf.MAGIC: gguf.read, zip_members.MAGIC: _zip}
_LEGACY_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF"
"""The first bytes of a pickle that PyTorch before 1.6 wrote."""
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "Zstandard", b"BZh": "bzip2"}


def read(source: BoundedFile) -> Contents:
    """Return the contents of a checkpoint of any known format.

    Raises:
        Packed: the file is compressed as a whole, or is a zip archive of compressed members that PyTorch did not write.
        Unrecognized: the file begins like no known format.
        Refused: the file violates its format.
    """
    if source.size < 8:
        raise Unrecognized(f"{source.size} bytes are no checkpoint", 0)
    start = source.read(0, min(9, source.size), "the first bytes")
    if reader := _BY_MAGIC.get(start[:4]):
        return reader(source)
    if start[:8] == _LEGACY_TORCH[:8]:
        raise Refused("is a pickle of PyTorch before 1.6; load and save it again with a newer PyTorch", 0)
    # safetensors has no magic number. Eight bytes with the header's length precede a JSON object.
    if start[8:] == b"{":
        return safetensors.read(source)
    for magic, name in _COMPRESSED.items():
        if start.startswith(magic):
            raise Packed(f"is compressed ({name}); unpack it and name an unpacked file", 0)
    raise Unrecognized("begins like none of safetensors, APR v2, PyTorch's zip, NumPy's npz and GGUF", 0)
