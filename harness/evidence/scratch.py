"""The temporary folders of `harness run --scratch`. They are below one folder of the user, and old ones are removed."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from harness.base.beneath import Beneath
from harness.base.removal import remove
from harness.evidence.atomic_dir import locked
from harness.evidence.bundle_layout import MANIFEST

__all__ = ["KEPT", "scratch_folder"]

KEPT = 3
"""How many folders of a user stay, the new one included."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder for the bundles of a run. If no bundle is in it after the block, it is removed.

    All but the newest folders of the user are removed, except those of running processes: each holds a lock on its own.

    Raises:
        OSError: the folder cannot be made.
    """
    above = _folder_of_user()
    with ExitStack() as held:
        with locked(Beneath(above), fcntl.LOCK_EX):  # another run must not remove the folder before it is locked
            earlier = sorted(int(entry.name) for entry in above.iterdir() if entry.name.isdecimal())
            place = Beneath(above, str(earlier[-1] + 1 if earlier else 1))
            place.path.mkdir(mode=0o700)
            held.enter_context(locked(place, fcntl.LOCK_EX))
            for number in earlier[: 1 - KEPT]:
                old = Beneath(above, str(number))
                with suppress(OSError), locked(old, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    remove(old)
        try:
            yield place.path
        finally:
            if not any(place.path.glob(f"*/*/*/{MANIFEST}")):
                remove(place)


def _folder_of_user() -> Path:
    """The folder with all scratch folders of this user. If another user made a folder of this name, it is refused."""
    folder = Path(tempfile.gettempdir()) / f"harness-scratch-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise FileExistsError(errno.EEXIST, "is not a folder of this user; remove it, or set TMPDIR", str(folder))
    return folder
