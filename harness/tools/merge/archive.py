"""Extracting a zip file of bundles that is not trusted.

extract(Path("bundles.zip"), folder)    # then the bundles below `folder` are verified like any others
"""

from __future__ import annotations

import stat
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Final
from zipfile import BadZipFile, ZipFile

from harness.base import regular_file
from harness.evidence import manifest
from harness.machine.limited_process import Limits, Stopped, isolated

__all__ = ["LARGEST", "MOST_ENTRIES", "ArchiveError", "extract"]

LARGEST: Final = 1 << 30
"""Bytes of what an archive contains."""
MOST_ENTRIES: Final = 0xFFFE
"""More files and folders need zip64, which an archive of bundles does not use."""
_DAMAGED = (BadZipFile, EOFError, NotImplementedError, OSError, OverflowError, RuntimeError, ValueError, struct.error,
            zlib.error)  # fmt: skip
"""What zipfile raises for files that are damaged, encrypted or no zip files, and what the disk raises."""


class ArchiveError(ValueError):
    """An archive cannot be extracted; the text says why."""


def extract(source: Path, into: Path) -> None:
    """Extract a zip file into a folder, in a process with bounded memory: zipfile loads a directory of any size.

    Raises:
        ArchiveError: it is no archive of bundles: a name leads elsewhere, there is a link, it is damaged or too large.
            Some files may have been written.
    """
    try:
        refusal = isolated(partial(_extract, source, into), Limits())
    except Stopped as error:
        raise ArchiveError(f"extracting it {error}") from error
    if refusal:
        raise ArchiveError(refusal.decode("utf-8"))


def _extract(source: Path, into: Path) -> bytes:
    """Return why the archive is refused; empty if it is extracted."""
    try:
        with regular_file.opened(source) as file, ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > MOST_ENTRIES or sum(member.file_size for member in members) > LARGEST:
                return f"has more than {MOST_ENTRIES} entries, or more than {LARGEST} bytes of content".encode()
            for member in members:
                manifest.check_name(member.orig_filename.removesuffix("/"))
                if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFDIR, stat.S_IFREG):
                    return f"{member.filename!r} is a link, a device or a pipe".encode()
            archive.extractall(into)
    except _DAMAGED as error:
        return (str(error) or type(error).__name__).encode("utf-8", errors="backslashreplace")
    return b""
