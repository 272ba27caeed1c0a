"""Unpacking an archive of bundles that a stranger made: either all of it is sound and arrives, or nothing does.

    for bundle in unpack(Path("bundles.zip"), Path("evidence")):
        print(bundle.verdict, bundle.path)

Names, sizes and headers are looked at before anything is written; then the files are written into a hidden folder
beside their places, the bundles in it verified, and each renamed to its place, where nothing may be yet.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from harness.evidence.archive import UNPACKING, ArchiveError, Place, check_sizes, files_by_bundle
from harness.evidence.durable import sync_folder, sync_tree
from harness.evidence.verify import Verification, verify_all
from harness.evidence.zip_reader import Member, content, members

__all__ = ["unpack"]


def unpack(source: Path, into: Path) -> list[Verification]:
    """Unpack the bundles of a zip file to <into>/<issue>/<claim>/<run>, and say what is known of each.

    `into` and the folders below it are made where they do not exist.

    Raises:
        ArchiveError: the file is no archive of sound bundles. Nothing was written.
        OSError: something cannot be read or written, or a bundle's place is taken. Nothing is left of what was written.
    """
    with source.open("rb") as file:
        found = members(file)
        places = _bundles(found)
        for place in places:
            if os.path.lexists(into.joinpath(*place)):
                raise FileExistsError(errno.EEXIST, "is there already, and is not replaced", str(into.joinpath(*place)))
        with _made(into), _hidden_folder(into) as hidden:
            for member in found:
                if not member.is_folder:
                    _write(file, member, hidden)
            verified = list(_verified(hidden, places))
            sync_tree(hidden)
            _move(hidden, into, places)
    return [replace(one, path=into.joinpath(*place)) for one, place in zip(verified, places, strict=True)]


def _bundles(found: Sequence[Member]) -> list[Place]:
    """The places of the bundles, sorted."""
    files = [member for member in found if not member.is_folder]
    if not files:
        raise ArchiveError("holds no bundle")
    places = sorted(files_by_bundle(member.name for member in files))
    check_sizes((member.name, member.size) for member in files)
    above = {
        "/".join(parts[:depth]) for parts in (file.name.split("/") for file in files) for depth in range(len(parts))
    }
    for member in found:
        if member.is_folder and member.name.removesuffix("/") not in above:
            raise ArchiveError(f"{member.name!r} is a folder without a file, and a bundle has none")
    return places


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
