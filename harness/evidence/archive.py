"""What an archive of bundles is: a zip file that holds <issue>/<claim>/<run>/<file of the bundle> and nothing else.

`harness.evidence.pack` writes one, `harness.evidence.unpack` reads it. Names and limits are the same for both, so that
whatever was packed can be unpacked.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

from harness.evidence import manifest
from harness.evidence.layout import DEEPEST, LARGEST_BUNDLE, MOST_FILES, is_folder_name

__all__ = [
    "LARGEST_ARCHIVE",
    "LONGEST_NAME",
    "MOST_BUNDLES",
    "MOST_ENTRIES",
    "UNPACKING",
    "ArchiveError",
    "Place",
    "check_sizes",
    "files_by_bundle",
]

LARGEST_ARCHIVE: Final = 1 << 30
"""Bytes of an archive, and of all that is in it."""
MOST_BUNDLES: Final = 1000
MOST_ENTRIES: Final = 0xFFFE
"""With more a zip file needs the extensions of zip64, which no archive of bundles has."""
LONGEST_NAME: Final = 1024
"""UTF-8 bytes of a file's name with its folders."""
_LONGEST_PART: Final = 255
"""UTF-8 bytes of the name of one file or folder: what ext4, XFS and tmpfs take."""
_PLACE: Final = 3

UNPACKING: Final = ".unpacking-"
"""How the name of a folder begins into which an archive is being unpacked, or was when its reader died."""

Place = tuple[str, str, str]
"""Issue, claim and run: the folders in which a bundle lies."""


class ArchiveError(ValueError):
    """An archive of bundles cannot be written or read; the text says what stands in the way."""


def files_by_bundle(names: Iterable[str]) -> dict[Place, list[str]]:
    """The files of each bundle, by names relative to it.

    Args:
        names: of the files in an archive, in any order.

    Raises:
        ArchiveError: a name leads elsewhere, two of them are one on some filesystem, or they are more than
            bundles have.
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
    """Refuse more bytes than a bundle, and than an archive, has.

    Args:
        sizes: name in the archive, and bytes, of every file.

    Raises:
        ArchiveError: they add up to more.
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
    """What two names share that some filesystem takes for one: it may ignore case, and how letters are composed."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
