"""Packing: sound bundles into one zip file, which has the same bytes wherever and whenever it is made.

    packed = pack([Path("evidence/PMAT-697")], Path("bundles.zip"))
    print(packed.sha256)

Names are sorted, times, modes and versions fixed, and nothing is compressed: what deflate makes of the same bytes
depends on the zlib that Python was built with (zlib-ng packs otherwise than zlib), and on its version. Who stores or
sends the file may compress it; GitHub does so with the artifacts of a workflow.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from harness.evidence import manifest, untrusted
from harness.evidence.archive import MOST_ENTRIES, ArchiveError, check_sizes, files_by_bundle
from harness.evidence.durable import sync_folder
from harness.evidence.layout import MANIFEST
from harness.evidence.verify import Verification, find_bundles, no_folder, verify_all

__all__ = ["NothingToPack", "Packed", "pack"]

_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip file can name."""
_UNIX = 3
_CHUNK = 1 << 20


class NothingToPack(ArchiveError):
    """There is no bundle at or below the paths."""


@dataclass(frozen=True)
class Packed:
    """What went into an archive."""

    bundles: tuple[Verification, ...]
    """In the order of their names in the archive."""
    files: int
    size: int
    """Bytes of the archive."""
    sha256: str


@dataclass(frozen=True)
class _File:
    bundle: Path
    name: str
    """In the bundle."""
    archived: str
    """In the archive."""
    size: int
    sha256: str | None
    """As the manifest has it; None for the manifest itself, and for what else lies outside of it."""


def pack(paths: Sequence[Path], target: Path) -> Packed:
    """Write the bundles at or below these folders into a new zip file, which is there whole or not at all.

    Every bundle is verified first. In the archive it lies at <issue>/<claim>/<run>/, wherever it lay before.

    Raises:
        NothingToPack: there is no bundle.
        ArchiveError: a bundle is unsound or changes meanwhile, two are filed at the same place, or they are more than
            an archive takes.
        OSError: something cannot be read or written, or `target` exists already.
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
        with temporary.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
            size = os.fstat(written.fileno()).st_size
        _publish(temporary, target)
    except OSError as error:
        if error.filename == str(temporary):  # of which nobody knows but we
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    finally:
        if temporary.exists():  # on a read-only filesystem removing what is not there fails too, with this name
            temporary.unlink()
    sync_folder(target.parent)
    return Packed(tuple(bundles), len(files), size, digest)


def _sound(paths: Sequence[Path]) -> list[Verification]:
    """The bundles at or below these folders, each once, in the order of their places."""
    for path in paths:
        if not path.is_dir():
            raise ArchiveError(f"{path} {no_folder(path)}")
    found = {bundle.resolve(): bundle for bundle in find_bundles(paths)}
    if not found:
        raise NothingToPack(f"there is no bundle below {', '.join(map(str, paths))}")
    places: dict[tuple[str | None, ...], Verification] = {}
    for one in verify_all(list(found.values())):
        if not one.sound:
            raise ArchiveError(f"{one.path} is unsound ({one.problem}); `harness verify` says more")
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
            hashed = hashlib.sha256()
            with archive.open(entry, "w") as into:
                for chunk in untrusted.chunks(file.bundle, file.name):
                    hashed.update(chunk)
                    into.write(chunk)
            if file.sha256 not in (None, hashed.hexdigest()):
                raise ArchiveError(f"{file.bundle}/{file.name} changed after it was verified")


def _publish(temporary: Path, target: Path) -> None:
    """Give a file its name, which nothing has."""
    try:
        os.link(temporary, target)  # unlike a rename it replaces nothing that came there meanwhile
    except FileExistsError:
        raise
    except OSError as error:  # FAT and some network filesystems have no hard links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "exists already", str(target)) from error
        temporary.rename(target)
