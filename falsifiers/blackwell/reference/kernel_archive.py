"""The kernel archive: every kernel for every target as machine code, compiled once, on a machine without a GPU.

    archive/
        index.json                                  the compiler, and of each image: kernel, sm, source digest, SHA-256
        sm_90/gate_backward_x_n896_k4864_tile64.cubin

Equal sources and an equal compiler give equal bytes, the index included. An image is found by kernel, target and digest
of source and options, so code of an older source is never found; what is found is loaded without a compiler.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from falsifiers.blackwell.reference.kernels.nvrtc import Form, Image, compile_kernel, compiler_version
from falsifiers.blackwell.reference.kernels.spec import KernelSpec

__all__ = ["INDEX", "TARGETS", "Archive", "ArchiveEntry", "ArchiveError", "build", "write_index"]

TARGETS: Final = (75, 89, 90, 100, 120, 121)
"""Turing, Ada (RTX 4090), Hopper, Blackwell for data centres, for desktops, and GB10."""

INDEX: Final = "index.json"
_FORMAT: Final = 1


class ArchiveError(LookupError):
    """The archive has no such image, or is none; the text says what to do."""


@dataclass(frozen=True)
class ArchiveEntry:
    """One image: whose, for which target, what it was compiled from, and where it lies."""

    kernel: str
    sm: int
    source: str
    sha256: str
    file: str


@dataclass(frozen=True)
class Archive:
    """An archive that has been opened; images are read when they are asked for."""

    folder: Path
    compiler: str
    entries: Mapping[tuple[str, int], ArchiveEntry]

    @classmethod
    def open(cls, folder: Path) -> Archive:
        """Read the index; ArchiveError where there is none, or one of another format."""
        remedy = f"build one with: python -m falsifiers.blackwell.archive build {folder}"
        try:
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            if index["format"] != _FORMAT:
                raise ArchiveError(f"{folder} has an archive of format {index['format']}, not {_FORMAT}; {remedy}")
            entries = [ArchiveEntry(**one) for one in index["images"]]
            return cls(folder, index["compiler"], MappingProxyType({(one.kernel, one.sm): one for one in entries}))
        except OSError as error:
            raise ArchiveError(f"{folder} holds no kernel archive ({error.strerror}); {remedy}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise ArchiveError(f"the index in {folder} cannot be read ({error!r}); {remedy}") from error

    def image(self, spec: KernelSpec, sm: int) -> Image:
        """The machine code of a kernel for a target.

        Raises:
            ArchiveError: there is none for it, or it was compiled from another source, or its bytes were changed.
        """
        remedy = f"build it again: python -m falsifiers.blackwell.archive build {self.folder}"
        entry = self.entries.get((spec.key, sm))
        if entry is None:
            targets = sorted(of for kernel, of in self.entries if kernel == spec.key)
            held = f"only for sm {', '.join(map(str, targets))}" if targets else "not at all"
            raise ArchiveError(f"{spec.key} for sm_{sm} is not in the archive {self.folder}, {held}; {remedy}")
        if entry.source != spec.digest:
            raise ArchiveError(f"{spec.key} for sm_{sm} was compiled from another source; {remedy}")
        try:
            data = (self.folder / entry.file).read_bytes()
        except OSError as error:
            raise ArchiveError(f"{self.folder / entry.file}: {error.strerror}; {remedy}") from error
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise ArchiveError(f"{self.folder / entry.file} is not what was built; {remedy}")
        return Image(Form.CUBIN, data)


def build(
    folder: Path,
    kernels: Iterable[KernelSpec],
    targets: Iterable[int] = TARGETS,
    *,
    on_image: Callable[[ArchiveEntry], None] = lambda entry: None,
    compiled: Callable[[KernelSpec, int], Image] = compile_kernel,
) -> Archive:
    """Compile what is missing, drop what is no longer named, and write the index last.

    An image that is there, whole, from this source and this compiler is kept. A build that is interrupted leaves the
    index of before, or none.

    Args:
        on_image: told of every image, compiled or kept.
        compiled: makes an image of a kernel for a target.

    Raises:
        CompilationFailed: the compiler refused a kernel or does not know a target.
        OSError: the folder cannot be written.
    """
    compiler = f"nvrtc {compiler_version()}"
    before = _kept(folder, compiler)
    entries = []
    wanted = {spec.key: spec for spec in kernels}
    for sm in sorted(set(targets)):
        for key in sorted(wanted):
            spec = wanted[key]
            entry = before.get((key, sm))
            if entry is None or entry.source != spec.digest or not _is_whole(folder, entry):
                data = compiled(spec, sm).data
                file = f"sm_{sm}/{key}.cubin"
                _write(folder / file, data)
                entry = ArchiveEntry(key, sm, spec.digest, hashlib.sha256(data).hexdigest(), file)
            entries.append(entry)
            on_image(entry)
    write_index(folder, compiler, entries)
    named = {entry.file for entry in entries}
    for stray in folder.glob("sm_*/*.cubin"):
        if stray.relative_to(folder).as_posix() not in named:
            stray.unlink()
    return Archive.open(folder)


def write_index(folder: Path, compiler: str, entries: Iterable[ArchiveEntry]) -> None:
    """Put an index in the place of the one that is there, at once."""
    index: dict[str, Any] = {"format": _FORMAT, "compiler": compiler, "images": [asdict(entry) for entry in entries]}
    _write(folder / INDEX, (json.dumps(index, indent=1) + "\n").encode())


def _kept(folder: Path, compiler: str) -> Mapping[tuple[str, int], ArchiveEntry]:
    try:
        archive = Archive.open(folder)
    except ArchiveError:
        return {}
    return archive.entries if archive.compiler == compiler else {}


def _is_whole(folder: Path, entry: ArchiveEntry) -> bool:
    try:
        return hashlib.sha256((folder / entry.file).read_bytes()).hexdigest() == entry.sha256
    except OSError:
        return False


def _write(path: Path, data: bytes) -> None:
    """Write beside the place and rename: no reader meets half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; the archive of before is as it was", str(path)) from error
    finally:
        beside.unlink(missing_ok=True)
