"""The kernel archive: every kernel for every target as machine code, compiled once, without a GPU.

    archive/
        index.json                                  the compiler, and for each image: kernel, sm, source digest, SHA-256
        sm_90/gate_backward_x_n896_k4864_tile64.cubin

Equal sources and an equal compiler give equal bytes, the index included. An image is found by kernel, target and digest
of source and options, so code of an older source is never found. A found image is loaded without a compiler.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from filelock import FileLock

from falsifiers.blackwell.reference import archive_index
from falsifiers.blackwell.reference.archive_index import ArchiveEntry
from falsifiers.blackwell.reference.kernels.nvrtc import Form, Image, compile_kernel, compiler_version
from falsifiers.blackwell.reference.kernels.spec import KernelSpec

__all__ = ["INDEX", "TARGETS", "Archive", "ArchiveEntry", "ArchiveError", "build", "write_index"]

TARGETS: Final = (75, 89, 90, 100, 120, 121)
"""Turing, Ada (RTX 4090), Hopper, Blackwell (data centre), Blackwell (desktop), and GB10."""

INDEX: Final = "index.json"
_LOCK: Final = ".lock"
"""The lock file of a build. It is empty and stays after the build."""


class ArchiveError(LookupError):
    """The archive has no such image, or is not a valid archive; the text names the remedy."""


@dataclass(frozen=True)
class Archive:
    """An open archive. Images are read on request."""

    folder: Path
    compiler: str
    entries: Mapping[tuple[str, int], ArchiveEntry]

    @classmethod
    def open(cls, folder: Path) -> Archive:
        """Read the index; raises ArchiveError if it is missing or invalid."""
        remedy = f"build one with: python -m falsifiers.blackwell.archive build {folder}"
        try:
            compiler, entries = archive_index.read(_regular(folder, INDEX).read_bytes())
        except OSError as error:
            raise ArchiveError(f"{folder} holds no kernel archive ({error.strerror}); {remedy}") from error
        except archive_index.IndexRefused as error:
            raise ArchiveError(f"{folder / INDEX}: {error}; {remedy}") from error
        return cls(folder, compiler, MappingProxyType({(entry.kernel, entry.sm): entry for entry in entries}))

    def file(self, entry: ArchiveEntry) -> Path:
        """The path of an image, safe to read.

        Raises:
            FileNotFoundError: it is not a regular file, or is outside of the folder.
        """
        return _regular(self.folder, entry.file)

    def image(self, spec: KernelSpec, sm: int) -> Image:
        """The machine code of a kernel for a target.

        Raises:
            ArchiveError: the image is missing, comes from another source, or has other bytes.
        """
        remedy = f"build it again: python -m falsifiers.blackwell.archive build {self.folder}"
        entry = self.entries.get((spec.key, sm))
        if entry is None:
            targets = sorted(of for kernel, of in self.entries if kernel == spec.key)
            held = f"only for sm {', '.join(map(str, targets))}" if targets else "not at all"
            raise ArchiveError(f"{spec.key} for sm_{sm} is not in the archive {self.folder} ({held}); {remedy}")
        if entry.source != spec.digest:
            raise ArchiveError(f"{spec.key} for sm_{sm} was compiled from another source; {remedy}")
        try:
            data = self.file(entry).read_bytes()
        except OSError as error:
            raise ArchiveError(f"{self.folder / entry.file}: {error.strerror}; {remedy}") from error
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise ArchiveError(f"{self.folder / entry.file} does not have the digest of the index; {remedy}")
        return Image(Form.CUBIN, data)


def build(
    folder: Path,
    kernels: Iterable[KernelSpec],
    targets: Iterable[int] = TARGETS,
    *,
    on_image: Callable[[ArchiveEntry], None] = lambda entry: None,
    compiled: Callable[[KernelSpec, int], Image] = compile_kernel,
) -> Archive:
    """Compile missing images, remove those that are no longer named, and write the index last.

    An intact image from this source and compiler is kept. An interrupted build leaves the previous index, or none. Of
    two builds into one folder, the second waits for the first.

    Args:
        on_image: called for every image, compiled or kept.
        compiled: makes the image of a kernel for a target.

    Raises:
        CompilationFailed: the compiler refused a kernel or does not know a target.
        OSError: the folder cannot be written.
    """
    compiler = f"nvrtc {compiler_version()}"
    specs = {spec.key: spec for spec in kernels}
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / _LOCK):
        entries = _images(folder, compiler, specs, sorted(set(targets)), on_image, compiled)
        write_index(folder, compiler, entries)
        _drop_strays(folder, {entry.file for entry in entries})
        return Archive.open(folder)


def write_index(folder: Path, compiler: str, entries: Iterable[ArchiveEntry]) -> None:
    """Replace the index atomically."""
    _write(folder, INDEX, archive_index.written(compiler, entries))


def _images(
    folder: Path,
    compiler: str,
    specs: Mapping[str, KernelSpec],
    targets: Iterable[int],
    on_image: Callable[[ArchiveEntry], None],
    compiled: Callable[[KernelSpec, int], Image],
) -> list[ArchiveEntry]:
    """Every wanted image; missing ones are compiled."""
    before = _kept(folder, compiler)
    entries = []
    for sm in targets:
        for key in sorted(specs):
            spec = specs[key]
            entry = before.get((key, sm))
            if entry is None or entry.source != spec.digest:
                data = compiled(spec, sm).data
                file = f"sm_{sm}/{key}.cubin"
                _write(folder, file, data)
                entry = ArchiveEntry(key, sm, spec.digest, hashlib.sha256(data).hexdigest(), file)
            entries.append(entry)
            on_image(entry)
    return entries


def _kept(folder: Path, compiler: str) -> Mapping[tuple[str, int], ArchiveEntry]:
    """The intact images of the previous archive, if this compiler built it."""
    try:
        archive = Archive.open(folder)
    except ArchiveError:
        return {}
    return {
        cell: entry
        for cell, entry in archive.entries.items()
        if archive.compiler == compiler and _is_whole(archive, entry)
    }


def _is_whole(archive: Archive, entry: ArchiveEntry) -> bool:
    try:
        return hashlib.sha256(archive.file(entry).read_bytes()).hexdigest() == entry.sha256
    except OSError:
        return False


def _drop_strays(folder: Path, named: set[str]) -> None:
    """Remove images that the index does not name and leftovers of interrupted builds, but nothing behind a link."""
    for pattern in ("sm_*/*.cubin", "sm_*/.*.cubin.*", f".{INDEX}.*"):
        for stray in folder.glob(pattern):
            if stray.relative_to(folder).as_posix() not in named and not stray.parent.is_symlink():
                stray.unlink()


def _regular(folder: Path, name: str) -> Path:
    """A regular file inside the folder; raises FileNotFoundError for anything else."""
    path = folder / name
    try:
        inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    except ValueError as error:  # for example a name with a 0 byte
        raise FileNotFoundError(errno.ENOENT, "is not a file name", repr(name)) from error
    if not inside:
        raise FileNotFoundError(errno.ENOENT, "is outside of the archive", str(path))
    if path.exists() and not path.is_file():
        raise FileNotFoundError(errno.ENOENT, "is not a regular file", str(path))
    return path


def _write(folder: Path, name: str, data: bytes) -> None:
    """Write to a temporary file and rename it, so that no reader sees a partial file."""
    path = folder / name
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(folder)):
            raise OSError(errno.EXDEV, f"{path.parent} is a link out of the archive")
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; the previous archive is unchanged", str(path)) from error
    finally:
        beside.unlink(missing_ok=True)
