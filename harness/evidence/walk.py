"""The bundles below a folder, and whether their files have changed.

state = state_of(dict(walk(project.evidence)))
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.evidence.bundle_layout import DEEPEST, MANIFEST, OBSERVATION, RECORD, UNFINISHED

__all__ = ["identity", "state_of", "walk"]


def walk(root: Path) -> Iterator[tuple[bytes, str]]:
    """Yield the relative path of every bundle below a folder, with its fingerprint: "! …" names a problem."""
    pending: list[tuple[str, int]] = [(".", 0)]
    while pending:
        name, depth = pending.pop()
        folder = os.path.join(root, name)
        try:
            where = identity(os.path.join(folder, RECORD))
            try:
                where += f" {identity(os.path.join(folder, MANIFEST))}"
            except FileNotFoundError:
                where = f"! {MANIFEST} is missing"
            yield os.fsencode(name), where
            continue
        except FileNotFoundError:
            pass
        except OSError as error:
            yield os.fsencode(name), f"! {error.strerror}"
            continue
        try:
            with os.scandir(folder) as scanned:
                inside = list(scanned)
        except FileNotFoundError:
            continue  # there is no evidence yet, or the folder was just removed
        except OSError as error:
            yield os.fsencode(name), f"! {error.strerror}"
            continue
        if any(entry.name in (MANIFEST, OBSERVATION) for entry in inside):
            yield os.fsencode(name), f"! {RECORD} is missing"
        elif depth < DEEPEST:
            folders = [entry.name for entry in inside if entry.is_dir(follow_symlinks=False)]
            pending += [(os.path.join(name, one), depth + 1) for one in folders if not one.startswith(UNFINISHED)]


def identity(path: str) -> str:
    """Return the inode, size and times of a file: if it is the same, the content is taken as unchanged."""
    status = os.stat(path, follow_symlinks=False)
    kind = "" if stat.S_ISREG(status.st_mode) else " no regular file"
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}{kind}"


def state_of(found: Mapping[bytes, str]) -> str:
    """Return a digest of what `walk` found."""
    lines = (name + b" " + os.fsencode(fingerprint) for name, fingerprint in sorted(found.items()))
    return hashlib.sha256(b"\n".join(lines)).hexdigest()
