"""Unpacking an archive of bundles. The archive is not trusted: unless all of it is sound, nothing is unpacked.

    for one in unpack(Path("bundles.zip"), Path("evidence")):
        print(one.bundle.verdict, one.bundle.path, one.is_new)

1. Names, kinds and sizes are checked before anything is written, in a process with bounded memory and time.
2. The files are extracted into a hidden folder beside their places.
3. The bundles there are verified, so it does not matter how another program would read an ambiguous zip file.
4. Each bundle is renamed to its place. If the same bundle is there already, it stays as it is; any other file or folder
   there is an error.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from harness.base import regular_file
from harness.base.beneath import Beneath
from harness.evidence.atomic_dir import sync_tree
from harness.evidence.packing import (
    LARGEST_ARCHIVE,
    MOST_ENTRIES,
    ArchiveError,
    Place,
    check_sizes,
    files_by_bundle,
)
from harness.evidence.staging import WHOLE, at, content, difference, digests, hidden_folder, made, move
from harness.evidence.verification import Verification, verify_all
from harness.machine.limited_process import Limits, Stopped, isolated_all

__all__ = ["Unpacked", "unpack"]

_UNREADABLE = (
    BadZipFile, EOFError, NotImplementedError, OverflowError, RuntimeError, ValueError, struct.error, zlib.error,
)  # fmt: skip
"""What zipfile raises for files that are damaged, encrypted or not zip files."""
_STEEPEST: Final = 200
"""Uncompressed bytes per byte of the archive. Deflate reaches 1032; the files of a bundle stay below 20."""
_FLAT: Final = 8 << 20
"""Uncompressed bytes to which no ratio applies."""


@dataclass(frozen=True)
class Unpacked:
    """A bundle of the archive, at its place."""

    bundle: Verification
    is_new: bool
    """False if the same bundle, byte for byte, was there already."""


def unpack(source: Path, into: Path) -> list[Unpacked]:
    """Unpack the bundles of a zip file to <into>/<issue>/<claim>/<run>, and return them with their verification.

    `into` and the folders below it are made if they do not exist.

    Raises:
        ArchiveError: the file is not an archive of sound bundles. Nothing was written.
        OSError: a file cannot be read or written, or there is another file or folder at a bundle's place. Files that
            were written are removed.
    """
    _check(source)
    with _opened(source) as archive, made(Beneath(into)), hidden_folder(into) as hidden:
        files = _bundles(archive)
        for member in (member for members in files.values() for member in members):
            _write(archive, member, hidden)
        verified = dict(zip(files, _verified(hidden, [*files]), strict=True))
        new = [place for place in files if at(into, place).status() is None]
        for place in files.keys() - new:
            mine, theirs = dict(digests(at(hidden, place).path)), content(into, place)
            if mine != theirs:
                first = difference(mine, theirs)
                what = "is no folder of a bundle" if first == WHOLE else f"differs ({first})"
                reason = f"is there already and {what}; it is not replaced"
                raise FileExistsError(errno.EEXIST, reason, str(into.joinpath(*place)))
        sync_tree(Beneath(hidden))
        move(hidden, into, new)
    return [Unpacked(replace(one, path=into.joinpath(*place)), place in new) for place, one in verified.items()]


def _check(source: Path) -> None:
    """Read the archive's directory in a process with limited memory, because zipfile loads a directory of any size."""
    (told,) = isolated_all([partial(_refusal, source)], Limits(), 1)
    if isinstance(told, Stopped):
        raise ArchiveError(f"its directory could not be read: {told}")
    if told:
        raise ArchiveError(told.decode("utf-8"))


def _refusal(source: Path) -> bytes:
    """Return why the archive must not be extracted; empty if it may be."""
    try:
        with _opened(source) as archive:
            _bundles(archive)
    except (ArchiveError, OSError) as error:
        return str(error).encode("utf-8", errors="backslashreplace") or b"it cannot be read"
    return b""


@contextmanager
def _opened(source: Path) -> Iterator[ZipFile]:
    with regular_file.opened(source) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_ARCHIVE:
            raise ArchiveError(f"has {size} bytes; an archive of bundles has at most {LARGEST_ARCHIVE}")
        try:
            archive = ZipFile(file)
        except _UNREADABLE as error:
            raise ArchiveError(f"is not a zip file that can be read: {error}") from error
        with archive:
            yield archive


def _bundles(archive: ZipFile) -> dict[Place, list[ZipInfo]]:
    """Return the files of every bundle. The bundles are in the order of their places."""
    members = archive.infolist()
    if len(members) > MOST_ENTRIES:
        raise ArchiveError(f"has {len(members)} entries; an archive of bundles has at most {MOST_ENTRIES}")
    for member in members:
        _check_kind(member)
    files = {member.filename: member for member in members if not member.is_dir()}
    if not files:
        raise ArchiveError("holds no bundle")
    bundles = files_by_bundle(member.filename for member in members if not member.is_dir())
    check_sizes((name, member.file_size) for name, member in files.items())
    _check_ratio(archive, sum(member.file_size for member in files.values()))
    above = {"/".join(parts[:depth]) for parts in (name.split("/") for name in files) for depth in range(len(parts))}
    for member in members:
        if member.is_dir() and member.filename.removesuffix("/") not in above:
            raise ArchiveError(f"{member.filename!r} is a folder without a file, and a bundle has none")
    return {place: [files["/".join((*place, name))] for name in bundles[place]] for place in sorted(bundles)}


def _check_kind(member: ZipInfo) -> None:
    kind = stat.S_IFMT(member.external_attr >> 16)
    if member.filename != member.orig_filename:
        raise ArchiveError(f"{member.orig_filename!r} is a name with a NUL")
    if member.header_offset < 0:
        raise ArchiveError(f"{member.filename!r} is not where the directory says")
    if kind not in (0, stat.S_IFDIR if member.is_dir() else stat.S_IFREG):
        raise ArchiveError(f"{member.filename!r} is a link, a device or a pipe")
    if member.is_dir() and member.file_size:
        raise ArchiveError(f"{member.filename!r} is a folder with content")
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ArchiveError(f"{member.filename!r} is compressed by method {member.compress_type}, not by deflate")


def _check_ratio(archive: ZipFile, size: int) -> None:
    packed = os.stat(str(archive.filename)).st_size
    if size > _FLAT and size > _STEEPEST * packed:
        raise ArchiveError(f"has {packed} bytes and would become {size}; the files of bundles do not compress so well")


def _content(archive: ZipFile, member: ZipInfo) -> Iterator[bytes]:
    """Yield the content of a member in pieces; never more than the directory declares."""
    try:
        with archive.open(member) as packed:
            while chunk := packed.read(regular_file.CHUNK):
                yield chunk
            if packed.tell() != member.file_size:
                raise BadZipFile(f"it has {packed.tell()} of the {member.file_size} bytes that it declares")
    except _UNREADABLE as error:
        raise ArchiveError(f"{member.filename!r} cannot be extracted: {error}") from error


def _write(archive: ZipFile, member: ZipInfo, folder: Path) -> None:
    place = Beneath(folder, member.filename)
    place.parent.make_folder()
    with place.create() as output:
        for chunk in _content(archive, member):
            output.write(chunk)


def _verified(folder: Path, places: Sequence[Place]) -> Iterator[Verification]:
    verifications = verify_all([folder.joinpath(*place) for place in places])
    for place, one in zip(places, verifications, strict=True):
        if not one.sound:
            raise ArchiveError(f"the bundle {'/'.join(place)} is unsound: {one.findings[0]}")
        if (one.issue, one.id, one.run) != place:
            raise ArchiveError(f"the bundle {'/'.join(place)} is that of another run: {one.issue}/{one.id}/{one.run}")
        yield one
