"""Packing: put sound bundles into one zip file. The same bundles always give the same bytes.

    packed = pack([Path("evidence/PMAT-697")], Path("bundles.zip"))
    print(packed.sha256)

An archive contains <issue>/<claim>/<run>/<file of the bundle> and nothing else. `harness.evidence.unpacking` checks
names and sizes in the same way, so every packed archive can be unpacked.

Names are sorted; times, modes and versions are fixed. Nothing is compressed, because different versions of zlib write
different bytes. A service that stores the file may compress it; GitHub does so with the artifacts of a workflow.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from harness.base import regular_file
from harness.base.beneath import Beneath
from harness.evidence import manifest, untrusted
from harness.evidence.atomic_dir import sync_folder
from harness.evidence.bundle_layout import DEEPEST, LARGEST_BUNDLE, MANIFEST, MOST_FILES, is_folder_name
from harness.evidence.verification import Verification, find_bundles, no_folder, verify_all

__all__ = [
    "LARGEST_ARCHIVE",
    "LONGEST_NAME",
    "MOST_BUNDLES",
    "MOST_ENTRIES",
    "ArchiveError",
    "NothingToPack",
    "Packed",
    "Place",
    "check_sizes",
    "files_by_bundle",
    "pack",
]

LARGEST_ARCHIVE: Final = 1 << 30
"""Bytes of an archive, and of its content."""
MOST_BUNDLES: Final = 1000
MOST_ENTRIES: Final = 0xFFFE
"""With more entries a zip file needs zip64, which an archive of bundles does not use."""
LONGEST_NAME: Final = 1024
"""UTF-8 bytes of a file's name, including its folders."""
_LONGEST_PART: Final = 255
"""UTF-8 bytes of the name of one file or folder: the limit of ext4, XFS and tmpfs."""
_PLACE: Final = 3

Place = tuple[str, str, str]
"""Issue, claim and run: the folders in which a bundle lies."""


class ArchiveError(ValueError):
    """An archive of bundles cannot be written or read; the text says why."""


def files_by_bundle(names: Iterable[str]) -> dict[Place, list[str]]:
    """Return the files of each bundle, by names relative to it.

    Args:
        names: the names of the files in an archive, in any order.

    Raises:
        ArchiveError: a name lies in no bundle, two names are the same file on some filesystem, or there are more
            bundles or files than allowed.
    """
    bundles: dict[Place, list[str]] = {}
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in names:
        parts = _parts(name)
        bundles.setdefault((parts[0], parts[1], parts[2]), []).append("/".join(parts[_PLACE:]))
        key = _folded(name)
        if key in files:
            same = files[key] == name
            raise ArchiveError(f"{name!r} is there twice" if same else f"{name!r} and {files[key]!r} may be one file")
        files[key] = name
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            other = folders.setdefault(_folded(folder), folder)
            if other != folder:
                raise ArchiveError(f"the folders {folder!r} and {other!r} may be one folder")
    for key in sorted(files.keys() & folders.keys()):
        raise ArchiveError(f"{files[key]!r} is a file, and {folders[key]!r} a folder")
    if len(bundles) > MOST_BUNDLES:
        raise ArchiveError(f"there are {len(bundles)} bundles; an archive has at most {MOST_BUNDLES}")
    for place, below in bundles.items():
        if len(below) > MOST_FILES:
            raise ArchiveError(f"{'/'.join(place)} has {len(below)} files; a bundle has at most {MOST_FILES}")
    return bundles


def check_sizes(sizes: Iterable[tuple[str, int]]) -> None:
    """Refuse bundles and archives that are too large.

    Args:
        sizes: the name in the archive and the bytes of every file.

    Raises:
        ArchiveError: a bundle, or all bundles together, have too many bytes.
    """
    bundles: dict[tuple[str, ...], int] = {}
    for name, size in sizes:
        place = tuple(name.split("/")[:_PLACE])
        bundles[place] = bundles.get(place, 0) + size
        if bundles[place] > LARGEST_BUNDLE:
            raise ArchiveError(f"{'/'.join(place)} has more than {LARGEST_BUNDLE} bytes, the most a bundle has")
    total = sum(bundles.values())
    if total > LARGEST_ARCHIVE:
        raise ArchiveError(f"there are {total} bytes; an archive has at most {LARGEST_ARCHIVE}")


def _parts(name: str) -> list[str]:
    try:
        manifest.check_name(name)
    except manifest.ManifestError as error:
        raise ArchiveError(str(error)) from error
    parts = name.split("/")
    if len(parts) <= _PLACE or not all(map(is_folder_name, parts[:_PLACE])):
        raise ArchiveError(f"{name!r} lies in no bundle: it is not <issue>/<claim>/<run>/<file>")
    if len(parts) - _PLACE > DEEPEST:
        raise ArchiveError(f"{name!r} lies more than {DEEPEST} folders deep in its bundle")
    if len(name.encode()) > LONGEST_NAME or any(len(part.encode()) > _LONGEST_PART for part in parts):
        raise ArchiveError(
            f"{name[:60]!r}… is too long: a name has at most {_LONGEST_PART} bytes, with its folders {LONGEST_NAME}"
        )
    return parts


def _folded(name: str) -> str:
    """Return a form that is equal for names that some filesystem cannot tell apart, by case or by composed letters."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can represent."""
_UNIX = 3


class NothingToPack(ArchiveError):
    """There is no bundle at or below the paths."""


@dataclass(frozen=True)
class Packed:
    """A written archive."""

    bundles: tuple[Verification, ...]
    """The bundles, in the order of their names in the archive."""
    files: int
    size: int
    """Bytes of the archive."""
    sha256: str


@dataclass(frozen=True)
class _File:
    bundle: Path
    name: str
    """The name in the bundle."""
    archived: str
    """The name in the archive."""
    size: int
    sha256: str | None
    """The digest in the manifest; None for files that it does not list: the manifest itself and the attestation."""


def pack(paths: Sequence[Path], target: Path) -> Packed:
    """Write the bundles at or below these folders into a new zip file. After an error there is no file.

    Every bundle is verified first. In the archive it is at <issue>/<claim>/<run>/, independent of its present folder.

    Raises:
        NothingToPack: there is no bundle.
        ArchiveError: a bundle is unsound or changes during packing, two bundles are of the same run, or there are too
            many files or bytes for an archive.
        OSError: a file cannot be read or written, or `target` exists already.
    """
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "exists already; remove it or name another file", str(target))
    bundles = _sound(paths)
    files = sorted((file for bundle in bundles for file in _files(bundle)), key=lambda file: file.archived)
    files_by_bundle(file.archived for file in files)
    check_sizes((file.archived, file.size) for file in files)
    if len(files) > MOST_ENTRIES:
        raise ArchiveError(f"there are {len(files)} files; an archive has at most {MOST_ENTRIES}: pack fewer bundles")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with temporary.open("xb") as output:
            _write(output, files)
            output.flush()
            os.fsync(output.fileno())
        with regular_file.opened(temporary) as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
            size = os.fstat(written.fileno()).st_size
        _publish(temporary, target)
    except OSError as error:
        if error.filename == str(temporary):  # the user does not know the temporary file
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    finally:
        with suppress(OSError):  # there is none, or the filesystem is read-only
            temporary.unlink()
    sync_folder(Beneath(target.parent))
    return Packed(tuple(bundles), len(files), size, digest)


def _sound(paths: Sequence[Path]) -> list[Verification]:
    """Return the bundles at or below these folders, each once, in the order of their places."""
    for path in paths:
        if not path.is_dir():
            raise ArchiveError(f"{path} {no_folder(path)}")
    found = {Path(os.path.realpath(bundle)): bundle for bundle in find_bundles(paths)}
    if not found:
        raise NothingToPack(f"there is no bundle below {', '.join(map(str, paths))}")
    places: dict[tuple[str | None, ...], Verification] = {}
    for one in verify_all(list(found.values())):
        if not one.sound:
            raise ArchiveError(f"{one.path} is unsound ({one.findings[0]}); `harness verify` says more")
        place = (one.issue, one.id, one.run)
        if place in places:
            raise ArchiveError(f"{one.path} and {places[place].path} are bundles of the same run; pack one of them")
        places[place] = one
    return [places[place] for place in sorted(places, key=str)]


def _files(bundle: Verification) -> Iterable[_File]:
    content, _ = untrusted.read(bundle.path, MANIFEST)
    digests = manifest.parse(content)
    listing = untrusted.scan(bundle.path)
    for name, size in listing.files.items():
        yield _File(bundle.path, name, f"{bundle.issue}/{bundle.id}/{bundle.run}/{name}", size, digests.get(name))


def _write(output: BinaryIO, files: Iterable[_File]) -> None:
    with ZipFile(output, "w", ZIP_STORED, allowZip64=False) as archive:
        for file in files:
            entry = ZipInfo(file.archived, _EARLIEST)
            entry.create_system = _UNIX
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            entry.file_size = file.size
            with archive.open(entry, "w") as into:
                digest = untrusted.digest(file.bundle, file.name, into)
            if file.sha256 not in (None, digest):
                raise ArchiveError(f"{file.bundle}/{file.name} changed after it was verified")


def _publish(temporary: Path, target: Path) -> None:
    """Rename a file to a name that must not exist yet."""
    try:
        os.link(temporary, target)  # unlike a rename, a link never replaces a file that has appeared since
    except FileExistsError:
        raise
    except OSError as error:  # FAT and some network filesystems have no hard links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "exists already", str(target)) from error
        temporary.rename(target)
