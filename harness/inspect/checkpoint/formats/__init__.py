"""One reader a format, chosen by the first bytes of the file. A reader is a function from `Source` to `Contents`."""

from __future__ import annotations

from harness.inspect.checkpoint.contents import Contents
from harness.inspect.checkpoint.formats import apr, gguf, safetensors, torch_zip
from harness.inspect.checkpoint.source import Packed, Refused, Source, Unrecognized

__all__ = ["read"]

_BY_MAGIC = {apr.MAGIC: apr.read, gguf.MAGIC: gguf.read, torch_zip.MAGIC: torch_zip.read}
_LEGACY_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF"
"""A pickle that begins with PyTorch's magic number of before 1.6."""
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "Zstandard", b"BZh": "bzip2"}


def read(source: Source) -> Contents:
    """The contents of a checkpoint, whichever format it has.

    Raises:
        Packed: it is compressed as a whole, or a zip archive of compressed members that PyTorch did not write.
        Unrecognized: it begins like none of them.
        Refused: it violates the one that it has.
    """
    if source.size < 8:
        raise Unrecognized(f"{source.size} bytes are no checkpoint", 0)
    start = source.read(0, min(9, source.size), "the first bytes")
    if reader := _BY_MAGIC.get(start[:4]):
        return reader(source)
    if start[:8] == _LEGACY_TORCH[:8]:
        raise Refused("is a pickle of PyTorch before 1.6; load and save it again with a newer PyTorch", 0)
    # safetensors has no magic; its header's length is in front of a JSON object.
    if start[8:] == b"{":
        return safetensors.read(source)
    for magic, name in _COMPRESSED.items():
        if start.startswith(magic):
            raise Packed(f"is compressed ({name}); unpack it, and name a file that comes out", 0)
    raise Unrecognized("begins like none of safetensors, APR v2, PyTorch's zip and GGUF", 0)
