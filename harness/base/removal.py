"""Removes files of code under test: at any depth, without permissions, and of any kind.

    for remark in remove(Beneath(folder, "workspace")):
        …   # a file that is left, and why

The commands `rm` and `find` walk a tree with `openat`, so no path is too long, and no link is followed.
"""

from __future__ import annotations

import os
import subprocess
from typing import Final

from harness.base.beneath import Beneath

__all__ = ["remove"]

_MOST_REMARKS = 3
_GRANT: Final = ("-type", "d", "!", "-perm", "-700", "-execdir", "chmod", "u+rwx", "{}", ";")
"""Arguments of `find` that give their owner access to folders, and change no file, which can be a hard link."""


def remove(place: Beneath) -> list[str]:
    """Remove a file or a folder tree. It may be missing. Links are removed, not followed.

    Returns:
        the first files that are left, each with the reason. Only KeyboardInterrupt is raised.
    """
    entry = f"./{place.last}"
    try:
        with place.parent.passage() as above:
            left = _messages(above, "rm", "-rf", "--", entry)
            if left:
                _messages(above, "find", entry, *_GRANT)
                left = _messages(above, "rm", "-rf", "--", entry)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError) and place.status() is None
        return [] if is_missing else [f"{place}: {error.strerror or error}"]
    more = len(left) - _MOST_REMARKS
    return [*(f"{place.parent}: {line}" for line in left[:_MOST_REMARKS]), *([f"and {more} more"] if more > 0 else [])]


def _messages(folder: int, *command: str) -> list[str]:
    """Run a command in a folder, and return the lines that it writes to stderr."""
    environment, cwd = {**os.environ, "LC_ALL": "C"}, f"/proc/self/fd/{folder}"
    done = subprocess.run(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    return done.stderr.decode(errors="replace").splitlines()
