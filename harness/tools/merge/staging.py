"""Bundles that arrive from elsewhere: checked in a hidden folder beside their places, and then moved, all or none.

with made(Beneath(evidence)), hidden_folder(evidence) as hidden:
    ...                             # write hidden/<issue>/<claim>/<run>, verify it, sync it
    move(hidden, evidence, places)
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR
from typing import Final

from harness.base.beneath import Beneath
from harness.base.removal import remove
from harness.evidence import untrusted
from harness.evidence.atomic_dir import locked, sync_folder
from harness.evidence.bundle_layout import MANIFEST, UNPACKING

__all__ = ["WHOLE", "Place", "at", "content", "difference", "digests", "hidden_folder", "made", "move"]

Place = tuple[str, str, str]
"""Issue, claim and run: the folders in which a bundle lies."""
WHOLE: Final = "."
"""Stands for a difference of the whole folder: one of the two is not a folder of readable files."""


def at(folder: Path, place: Place) -> Beneath:
    """The place of a bundle below a folder of evidence."""
    return Beneath(folder, "/".join(place))


def move(hidden: Path, into: Path, places: Sequence[Place]) -> None:
    """Rename every bundle to its place. After an error, none of them is there."""
    with ExitStack() as moves:
        for place in places:
            target = at(into, place)
            moves.enter_context(made(target.parent))
            moves.enter_context(_moved(at(hidden, place), target))
            sync_folder(target.parent)


@contextmanager
def _moved(source: Beneath, target: Beneath) -> Iterator[None]:
    """Rename a folder to a place that has no folder with content. After an error in the block, remove it."""
    source.rename(target)
    try:
        yield
    except BaseException:
        remove(target)
        raise


@contextmanager
def made(folder: Beneath) -> Iterator[None]:
    """Make a folder and its parents. After an error in the block, remove those that were made."""
    missing = [parent for parent in (folder.path, *folder.path.parents) if not parent.exists()]
    folder.make_folder()
    try:
        yield
    except BaseException:
        for parent in missing:
            with suppress(OSError):  # another process may have put files there
                parent.rmdir()
        raise


@contextmanager
def hidden_folder(beside: Path) -> Iterator[Path]:
    """Make a folder in another, and remove it after the block. Also remove folders of processes that died.

    The process holds a lock on its folder. The lock ends with the process, also when the process is killed.
    """
    with ExitStack() as held:
        with locked(Beneath(beside), fcntl.LOCK_EX):  # another process must not remove the folder before it is locked
            _remove_abandoned(beside)
            try:
                folder = Path(tempfile.mkdtemp(prefix=UNPACKING, dir=beside))
            except OSError as error:  # it names the hidden folder, which the user does not know
                raise OSError(error.errno, error.strerror, str(beside)) from error
            held.callback(remove, Beneath(beside, folder.name))
            held.enter_context(locked(Beneath(beside, folder.name), fcntl.LOCK_EX))
        yield folder


def _remove_abandoned(beside: Path) -> None:
    for folder in beside.glob(f"{UNPACKING}*"):
        place = Beneath(beside, folder.name)
        with suppress(OSError), locked(place, fcntl.LOCK_EX | fcntl.LOCK_NB):
            remove(place)


def content(into: Path, place: Place) -> dict[str, str]:
    """Return the digest of every file at a place. If it is no folder of files, the result equals that of no bundle."""
    status = at(into, place).status()
    if status is None or not S_ISDIR(status.st_mode):
        return {WHOLE: ""}
    try:
        return dict(digests(at(into, place).path))
    except untrusted.TooLarge:
        return {WHOLE: ""}


def digests(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the sha256 of every file below a folder. What is no file has an empty digest."""
    listing = untrusted.scan(folder)
    for name in (*listing.refused, *listing.empty):
        yield name or WHOLE, ""
    for name in listing.files:
        yield name, untrusted.digest(folder, name)


def difference(mine: dict[str, str], others: dict[str, str]) -> str:
    """Return the first file that differs. The manifest differs whenever another file does, so it comes last."""
    return min({name for name, _ in mine.items() ^ others.items()}, key=lambda name: (name == MANIFEST, name))
