"""Finds the members of a zip archive by their offsets in the file. Nothing is decompressed."""

from __future__ import annotations

import struct
import zipfile
import zlib
from dataclasses import dataclass
from itertools import pairwise

from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Refused

__all__ = ["MAGIC", "Member", "listed", "stored", "verify"]

MAGIC = b"PK\x03\x04"
_END = b"PK\x05\x06"
_LONGEST_END = 22 + 0xFFFF
"""Bytes of the record at an archive's end, with the longest comment after it."""
_LOCAL_HEADER = "<4s5H3I2H"
_LOCAL_HEADER_SIZE = 30
_ENCRYPTED = 1
_PER_RECORD = 16
"""Bytes of memory for each byte of the directory. A record of 46 bytes becomes an object of up to 700."""


@dataclass(frozen=True)
class Member:
    """Where a stored member lies in the file, in bytes, and its CRC32."""

    offset: int
    size: int
    crc: int


def listed(source: BoundedFile) -> list[zipfile.ZipInfo]:
    """Return what the archive's directory lists."""
    try:
        with source.paid(_PER_RECORD) as file, zipfile.ZipFile(file) as archive:
            return archive.infolist()
    except zipfile.BadZipFile as error:
        tail = min(source.size, _LONGEST_END)
        if _END not in source.read(source.size - tail, tail, "the end of the file"):
            raise Refused("has no zip directory at its end: it is cut short", source.size) from error
        raise Refused(f"its zip directory cannot be read: {error}", source.size) from error
    except (OSError, ValueError, OverflowError, NotImplementedError, struct.error) as error:
        raise Refused(f"its zip directory cannot be read: {error}", source.size) from error


def stored(source: BoundedFile, directory: list[zipfile.ZipInfo], writer: str) -> dict[str, Member]:
    """Return the archive's members by name, each stored, unencrypted, and inside the file.

    Args:
        writer: what wrote the archive and never compresses, for messages.
    """
    members: dict[str, Member] = {}
    for zip_info in directory:
        source.budget.work(8)
        header = source.unpack(_LOCAL_HEADER, zip_info.header_offset, "a member's local header")
        if zip_info.filename in members:
            raise Refused(f"two members are named {zip_info.filename!r:.80}", zip_info.header_offset)
        if zip_info.compress_type != zipfile.ZIP_STORED or zip_info.compress_size != zip_info.file_size:
            raise Refused(
                f"the member {zip_info.filename!r:.80} is compressed, which {writer} never does", zip_info.header_offset
            )
        if zip_info.flag_bits & _ENCRYPTED:
            raise Refused(f"the member {zip_info.filename!r:.80} is encrypted", zip_info.header_offset)
        if header[0] != MAGIC:
            raise Refused(
                f"no member begins where the directory says {zip_info.filename!r:.80} does", zip_info.header_offset
            )
        offset = zip_info.header_offset + _LOCAL_HEADER_SIZE + header[-2] + header[-1]
        source.bound(offset, zip_info.file_size, f"the member {zip_info.filename!r:.80}")
        members[zip_info.filename] = Member(offset, zip_info.file_size, zip_info.CRC)
    ordered = sorted(members.items(), key=lambda item: item[1].offset)
    for (before, member), (name, after) in pairwise(ordered):
        if member.offset + member.size > after.offset:
            raise Refused(f"the members {before!r:.80} and {name!r:.80} overlap", after.offset)
    return members


def verify(source: BoundedFile, name: str, member: Member) -> None:
    """Raise `Refused` if a member's CRC32 is not the stored one."""
    computed = 0
    for chunk in source.chunks(member.offset, member.size, name):
        computed = zlib.crc32(chunk, computed)
    if computed != member.crc:
        raise Refused(
            f"the CRC32 of {name!r:.80} is {computed:08x}, and {member.crc:08x} is stored: it is corrupt", member.offset
        )
