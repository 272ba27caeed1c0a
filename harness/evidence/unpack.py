"""Unpacking an archive of bundles that a stranger made: either all of it is sound and arrives, or nothing does.

    for one in unpack(Path("bundles.zip"), Path("evidence")):
        print(one.bundle.verdict, one.bundle.path, one.is_new)

Names, sizes and headers are looked at before anything is written; then the files are written into a hidden folder
beside their places, the bundles in it verified, and each renamed to its place. Nothing may be there yet but the very
bundle, which is left as it is.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from harness.evidence import reader
from harness.evidence.archive import UNPACKING, ArchiveError, Place, check_sizes, files_by_bundle
from harness.evidence.durable import sync_folder, sync_tree
from harness.evidence.verify import Verification, verify_all
from harness.evidence.zip_reader import Member, content, members

__all__ = ["Unpacked", "unpack"]


@dataclass(frozen=True)
class Unpacked:
    """A bundle of the archive, at its place."""

    bundle: Verification
    is_new: bool
    """False where it lay there already, byte for byte."""


def unpack(source: Path, into: Path) -> list[Unpacked]:
    """Unpack the bundles of a zip file to <into>/<issue>/<claim>/<run>, and say what is known of each.

    `into` and the folders below it are made where they do not exist.

    Raises:
        ArchiveError: the file is no archive of sound bundles. Nothing was written.
        OSError: something cannot be read or written, or something else lies at a bundle's place. Nothing is left of
            what was written.
    """
    with source.open("rb") as file:
        found = members(file)
        files = _bundles(found)
        there = [place for place in files if os.path.lexists(into.joinpath(*place))]
        for place in there:
            if difference := _difference(file, files[place], into.joinpath(*place)):
                reason = f"is there already and differs ({difference}); it is not replaced"
                raise FileExistsError(errno.EEXIST, reason, str(into.joinpath(*place)))
        verified = dict(zip(there, _verified(into, there), strict=True))
        new = [place for place in files if place not in verified]
        if new:
            with _made(into), _hidden_folder(into) as hidden:
                for member in (member for place in new for member in files[place].values()):
                    _write(file, member, hidden)
                verified |= zip(new, _verified(hidden, new), strict=True)
                sync_tree(hidden)
                _move(hidden, into, new)
    return [
        Unpacked(replace(verified[place], path=into.joinpath(*place)), is_new=place not in there) for place in files
    ]


def _bundles(found: Sequence[Member]) -> dict[Place, dict[str, Member]]:
    """The files of every bundle by their names in it; the bundles in the order of their places."""
    files = {member.name: member for member in found if not member.is_folder}
    if not files:
        raise ArchiveError("holds no bundle")
    bundles = files_by_bundle(member.name for member in found if not member.is_folder)
    check_sizes((member.name, member.size) for member in files.values())
    above = {"/".join(parts[:depth]) for parts in (name.split("/") for name in files) for depth in range(len(parts))}
    for member in found:
        if member.is_folder and member.name.removesuffix("/") not in above:
            raise ArchiveError(f"{member.name!r} is a folder without a file, and a bundle has none")
    return {place: {name: files["/".join((*place, name))] for name in bundles[place]} for place in sorted(bundles)}


def _difference(file: BinaryIO, files: Mapping[str, Member], folder: Path) -> str:
    """The first difference between a bundle of the archive and what lies at its place; empty where there is none."""
    if folder.is_symlink() or not folder.is_dir():
        return "it is no folder"
    try:
        listing = reader.scan(folder)
        for name, why in listing.refused.items():
            return f"{name or 'it'} {why}"
        for name in sorted({*listing.files, *listing.empty} ^ files.keys()):
            return f"{name} is only {'in the archive' if name in files else 'there'}"
        for name, member in sorted(files.items()):
            packed = hashlib.sha256()
            for chunk in content(file, member):
                packed.update(chunk)
            if reader.digest(folder, name) != packed.hexdigest():
                return f"{name} has other content"
    except reader.TooLarge as error:
        return f"it {error}"
    return ""


def _write(file: BinaryIO, member: Member, folder: Path) -> None:
    path = folder / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as output:
        for chunk in content(file, member):
            output.write(chunk)


def _verified(folder: Path, places: Sequence[Place]) -> Iterator[Verification]:
    verifications = verify_all([folder.joinpath(*place) for place in places])
    for place, one in zip(places, verifications, strict=True):
        if not one.sound:
            raise ArchiveError(f"the bundle {'/'.join(place)} is unsound: {one.problem}")
        if (one.issue, one.id, one.run) != place:
            raise ArchiveError(f"the bundle {'/'.join(place)} is that of another run: {one.issue}/{one.id}/{one.run}")
        yield one


def _move(hidden: Path, into: Path, places: Sequence[Place]) -> None:
    """Rename every bundle to its place; after a failure none of them is there."""
    with ExitStack() as moves:
        for place in places:
            target = into.joinpath(*place)
            moves.enter_context(_made(target.parent))
            moves.enter_context(_moved(hidden.joinpath(*place), target))
            sync_folder(target.parent)


@contextmanager
def _moved(source: Path, target: Path) -> Iterator[None]:
    """Rename a folder, refused where one is that holds anything; after a failure within the block it is gone."""
    source.rename(target)
    try:
        yield
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; after a failure within the block, what was made is gone."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for one in missing:
            with suppress(OSError):  # another process may use it by now
                one.rmdir()
        raise


@contextmanager
def _hidden_folder(beside: Path) -> Iterator[Path]:
    """A new folder in another, gone after the block; what earlier readers left when they died is removed too.

    Its reader holds a lock on it, which ends with the process, however that ends.
    """
    with ExitStack() as held:
        with _lock(beside, fcntl.LOCK_EX):  # so that nobody takes the new folder for an abandoned one
            _remove_abandoned(beside)
            try:
                folder = Path(tempfile.mkdtemp(prefix=UNPACKING, dir=beside))
            except OSError as error:  # which names a folder that nobody knows but we
                raise OSError(error.errno, error.strerror, str(beside)) from error
            held.callback(shutil.rmtree, folder, ignore_errors=True)
            held.enter_context(_lock(folder, fcntl.LOCK_EX))
        yield folder


def _remove_abandoned(beside: Path) -> None:
    for folder in beside.glob(f"{UNPACKING}*"):
        with suppress(OSError), _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(folder)


@contextmanager
def _lock(folder: Path, kind: int) -> Iterator[None]:
    """A lock on a folder, or none where the filesystem has none (Lustre and NFS may not).

    Raises:
        OSError: `kind` says not to wait, and somebody has the lock or nobody can tell.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, kind)
        except OSError:
            if kind & fcntl.LOCK_NB:
                raise
        yield
    finally:
        os.close(descriptor)
