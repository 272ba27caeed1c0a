"""Reading a zip file that a stranger made, in the one way in which it can be understood.

    with path.open("rb") as file:
        for member in members(file):
            for chunk in content(file, member): …

A zip file says most things twice, and its readers differ in whom they believe: bytes before the first entry, between
entries and after the end, comments, a second name in an extra field, sizes that disagree. Libraries are lenient there
by design. This reader is not: entries, directory and end record fill the file without a gap or an overlap,
and what is said twice is the same twice. The numbers in comments are sections of PKWARE's APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from harness.evidence.archive import LARGEST_ARCHIVE, LONGEST_NAME, MOST_ENTRIES, ArchiveError

__all__ = ["Member", "content", "members"]

_END = struct.Struct("<4s4H2LH")  # 4.3.16
_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
_LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7
_DESCRIPTOR = struct.Struct("<3L")  # 4.3.9
_STORED, _DEFLATED = 0, 8
_NEWEST = 20
"""The version needed to extract for folders and deflate; what needs more is encrypted, split, patched or zip64."""

_ENCRYPTED: Final = 0x0001 | 0x0040 | 0x2000  # 4.4.4
_AFTER: Final = 0x0008
"""The sizes follow the content, in a data descriptor."""
_UTF8: Final = 0x0800
_UNDERSTOOD: Final = 0x0006 | _AFTER | _UTF8
_TIMES = frozenset({0x000A, 0x5455, 0x5855, 0x7855, 0x7875})
"""Extra fields that hold times and owners, which are not used; others can change names and sizes."""

_CHUNK = 1 << 16
_STEEPEST = 200
"""How many bytes may come out of one, where it matters: deflate reaches 1032, a bundle's files stay below 20."""
_FLAT = 8 << 20
"""Bytes that may come out of however few."""


@dataclass(frozen=True)
class Member:
    """One entry of a zip file, whose headers agree."""

    name: str
    is_folder: bool
    size: int
    """Bytes of the content, as declared."""
    start: int
    """Where the packed content begins in the file."""
    packed: int
    """Bytes of the packed content."""
    method: int
    crc: int


@dataclass(frozen=True)
class _Entry:
    """What the directory says of a member."""

    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    attributes: int
    offset: int


def members(file: BinaryIO) -> list[Member]:
    """The entries of a zip file, in the order of its directory. No content is read.

    Raises:
        ArchiveError: the file is no zip file, can be read in more than one way, or has what no archive of bundles has:
            encryption, links, devices, comments, zip64, several disks, other methods than stored and deflated, more
            bytes out than go in by a factor of 200.
        OSError: it cannot be read.
    """
    directory, start = _directory(file)
    entries = list(_entries(directory))
    found = [_member(file, entry) for entry in entries]
    _check_layout(file, list(zip(entries, found, strict=True)), start)
    out, into = sum(member.size for member in found), os.fstat(file.fileno()).st_size
    if out > _FLAT and out > _STEEPEST * into:
        raise ArchiveError(f"would become {out} bytes from {into}: bundles do not, bombs do")
    return found


def content(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """The content of an entry, piece by piece; no more than it declares.

    Raises:
        ArchiveError: it has fewer or more bytes than declared, is no deflated data, or has another checksum. Before
            that all of the content may have been given out.
        OSError: the file cannot be read.
    """
    size, crc = 0, 0
    for chunk in _unpacked(file, member):
        size += len(chunk)
        if size > member.size:
            raise ArchiveError(f"{member.name!r} has more than the {member.size} bytes that it declares")
        crc = zlib.crc32(chunk, crc)
        yield chunk
    if size != member.size:
        raise ArchiveError(f"{member.name!r} has {size} of the {member.size} bytes that it declares")
    if crc != member.crc:
        raise ArchiveError(f"{member.name!r} is damaged: its checksum is another")


def _directory(file: BinaryIO) -> tuple[bytes, int]:
    """The bytes of the central directory, and where it begins."""
    size = os.fstat(file.fileno()).st_size
    if size > LARGEST_ARCHIVE:
        raise ArchiveError(f"has {size} bytes; an archive of bundles has at most {LARGEST_ARCHIVE}")
    if size < _END.size:
        raise ArchiveError("is no zip file, or was cut short")
    end = _END.unpack(_read(file, size - _END.size, _END.size))
    signature, disk, first_disk, here, count, length, start, comment = end
    if signature != b"PK\5\6" or comment:
        raise ArchiveError("does not end as a zip file without a comment does: it is none, was cut or was added to")
    if 0xFFFF in (disk, first_disk, here, count) or 0xFFFFFFFF in (length, start):
        raise ArchiveError("is zip64, which no archive of bundles needs to be")
    if disk or first_disk or here != count:
        raise ArchiveError("is one of several disks")
    if count > MOST_ENTRIES or length > count * (_CENTRAL.size + 2 * LONGEST_NAME):
        raise ArchiveError(f"has a directory of {length} bytes for {count} entries, which is too much")
    if start + length != size - _END.size:
        raise ArchiveError("has bytes before, between or after what its end record names (zip64 would)")
    directory = _read(file, start, length)
    if sum(1 for _ in _entries(directory)) != count:
        raise ArchiveError(f"does not have the {count} entries that its end record names")
    return directory, start


def _entries(directory: bytes) -> Iterator[_Entry]:
    position = 0
    while position < len(directory):
        if len(directory) - position < _CENTRAL.size:
            raise ArchiveError("has a directory that breaks off")
        fields = _CENTRAL.unpack_from(directory, position)
        (signature, _, needed, flags, method, _, _, crc, packed, size, *lengths, disk, _, attributes, offset) = fields
        position += _CENTRAL.size
        if signature != b"PK\1\2" or position + sum(lengths) > len(directory):
            raise ArchiveError("has a directory that breaks off")
        name = directory[position : position + lengths[0]]
        extra = directory[position + lengths[0] : position + lengths[0] + lengths[1]]
        position += sum(lengths)
        shown = ascii(name)[1:][:80]
        if flags & _ENCRYPTED:
            raise ArchiveError(f"{shown} is encrypted")
        if flags & ~_UNDERSTOOD or method not in (_STORED, _DEFLATED) or needed & 0xFF > _NEWEST or disk:
            raise ArchiveError(f"{shown} is stored in a way that no archive of bundles needs (method {method})")
        if 0xFFFFFFFF in (packed, size, offset):
            raise ArchiveError(f"{shown} is zip64, which no archive of bundles needs to be")
        if lengths[2]:
            raise ArchiveError(f"{shown} has a comment")
        _check_extra(extra, shown)
        yield _Entry(name, flags, method, crc, packed, size, attributes, offset)


def _member(file: BinaryIO, entry: _Entry) -> Member:
    """The entry as a member, once its local header was found to say the same."""
    name = _name(entry)
    header = _LOCAL.unpack(_read(file, entry.offset, _LOCAL.size))
    signature, _, flags, method, _, _, crc, packed, size, name_length, extra_length = header
    if signature != b"PK\3\4":
        raise ArchiveError(f"{name!r} is not where the directory says")
    start = entry.offset + _LOCAL.size
    again = _read(file, start, name_length)
    _check_extra(_read(file, start + name_length, extra_length), repr(name))
    told = (crc, packed, size)
    known = (entry.crc, entry.packed, entry.size)
    if (again, flags, method) != (entry.raw_name, entry.flags, entry.method) or (
        told != known and not (flags & _AFTER and told == (0, 0, 0))
    ):
        raise ArchiveError(f"{name!r} is described otherwise before its content than in the directory")
    is_folder = name.endswith("/")
    kind = stat.S_IFMT(entry.attributes >> 16)
    if kind not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG):
        raise ArchiveError(f"{name!r} is a link, a device or a pipe")
    if is_folder and entry.size:
        raise ArchiveError(f"{name!r} is a folder with content")
    if entry.method == _STORED and entry.packed != entry.size:
        raise ArchiveError(f"{name!r} declares {entry.size} bytes and has {entry.packed}")
    return Member(
        name, is_folder, entry.size, start + name_length + extra_length, entry.packed, entry.method, entry.crc
    )


def _name(entry: _Entry) -> str:
    # Without the flag the letters are those of code page 437, which no two readers agree upon beyond ASCII.
    encoding = "utf-8" if entry.flags & _UTF8 else "ascii"
    try:
        return entry.raw_name.decode(encoding)
    except UnicodeDecodeError as error:
        raise ArchiveError(f"{ascii(entry.raw_name)[1:][:80]} is a name that is not {encoding}") from error


def _check_extra(extra: bytes, shown: str) -> None:
    position = 0
    while position < len(extra):
        if len(extra) - position < 4:
            raise ArchiveError(f"{shown} has an extra field that breaks off")
        kind, length = struct.unpack_from("<2H", extra, position)
        position += 4 + length
        if kind not in _TIMES or position > len(extra):
            what = "zip64, which no archive of bundles needs" if kind == 1 else f"an extra field {kind:#06x}"
            raise ArchiveError(f"{shown} has {what}")


def _check_layout(file: BinaryIO, found: Sequence[tuple[_Entry, Member]], directory: int) -> None:
    """The entries follow each other from the first byte to the directory."""
    position = 0
    for entry, member in sorted(found, key=lambda pair: pair[0].offset):
        if entry.offset != position:
            raise ArchiveError(f"{member.name!r} overlaps another entry, or there are bytes before it in no entry")
        position = member.start + member.packed
        if entry.flags & _AFTER:
            position += _descriptor(file, entry, position)
    if position != directory:
        raise ArchiveError("has bytes between its last entry and its directory, or they overlap")


def _descriptor(file: BinaryIO, entry: _Entry, position: int) -> int:
    """The length of the data descriptor that is there."""
    told = _DESCRIPTOR.pack(entry.crc, entry.packed, entry.size)
    found = _read(file, position, 4 + _DESCRIPTOR.size)
    if found == b"PK\7\x08" + told:
        return len(found)
    if found.startswith(told):
        return len(told)
    raise ArchiveError(f"{ascii(entry.raw_name)[1:][:80]} is described otherwise after its content")


def _unpacked(file: BinaryIO, member: Member) -> Iterator[bytes]:
    if member.method == _STORED:
        yield from _pieces(file, member)
        return
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for piece in _pieces(file, member):
            while piece and not inflater.eof:
                yield inflater.decompress(piece, _CHUNK)
                piece = inflater.unconsumed_tail
            if piece or inflater.unused_data:
                raise ArchiveError(f"{member.name!r} has bytes after the end of its content")
        while not inflater.eof:
            rest = inflater.decompress(b"", _CHUNK)
            if not rest:
                raise ArchiveError(f"{member.name!r} breaks off")
            yield rest
    except zlib.error as error:
        raise ArchiveError(f"{member.name!r} cannot be decompressed: {error}") from error


def _pieces(file: BinaryIO, member: Member) -> Iterator[bytes]:
    for position in range(member.start, member.start + member.packed, _CHUNK):
        yield _read(file, position, min(_CHUNK, member.start + member.packed - position))


def _read(file: BinaryIO, position: int, length: int) -> bytes:
    file.seek(position)
    found = file.read(length)
    if len(found) != length:
        raise ArchiveError("breaks off: it is shorter than it says")
    return found
