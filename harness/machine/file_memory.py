"""Caches values that are computed from files, in the cache folder, until the files change.

    memory = FileMemory("mentions", root, pattern)
    for file in files:
        memory.of(file, ids_in)  # reads the file only if it changed
    memory.save()

A file with the same inode, size and times counts as unchanged. The first line of the cache's document is a digest of
the rest, so a damaged or edited document is ignored. You may delete it at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, final

from harness.base import regular_file, strictjson
from harness.machine.cache_folder import NoCacheFolderError, cache_folder

__all__ = ["FileMemory", "identity", "keep", "recall"]

T = TypeVar("T")
_LARGEST = 1 << 30
"""Maximum bytes of a document. An index has about 1,700 for each bundle."""


def identity(path: str, *, of_target: bool = False) -> str:
    """Return inode, size and times of a file. While they are equal, the content counts as unchanged.

    Args:
        of_target: if the path is a link, use the file to which it leads.
    """
    status = os.stat(path, follow_symlinks=of_target)
    kind = "" if stat.S_ISREG(status.st_mode) else " no regular file"
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}{kind}"


@final
class FileMemory:
    """A cache of JSON values by name. A save drops names that were not read since the last save."""

    def __init__(self, kind: str, root: Path | None, key: str, folder: Path | None = None) -> None:
        """Args:
        kind: the prefix of the document's name.
        root: the root of the project; None for no cache.
        key: an input of the values besides the files.
        folder: of the document; None for the user's cache folder.
        """
        self._place = kind, root, key, folder
        known = None if root is None else recall(kind, root, key, folder)
        self._known: dict[str, Any] = known if isinstance(known, dict) else {}
        self._asked: dict[str, Any] = {}

    def of(self, file: str, make: Callable[[str], T]) -> T:
        """Return the value of a file, which `make` computes from the file alone. Links are followed."""
        if file not in self._asked:
            try:
                state = identity(file, of_target=True)
            except OSError:
                return make(file)
            return self.get(file) if self.knows(file, state) else self.put(file, state, make(file))
        value: T = self._asked[file][1]
        return value

    def knows(self, name: str, state: str) -> bool:
        """Whether there is a value for this name in this state."""
        return name in self._known and self._known[name][0] == state

    def get(self, name: str) -> Any:
        """Return the value of a name."""
        self._asked[name] = self._known[name]
        return self._known[name][1]

    def put(self, name: str, state: str, value: T) -> T:
        """Store a value for a name in this state."""
        self._asked[name] = [state, value]
        return value

    def save(self) -> None:
        """Write the values that were read or stored since the last save."""
        kind, root, key, folder = self._place
        if root is not None and self._asked != self._known:
            keep(kind, root, key, self._asked, folder)


def recall(kind: str, root: Path, key: str, folder: Path | None = None) -> Any:
    """Return a project's document for this key; None if there is none, or it was damaged."""
    with suppress(OSError, ValueError, NoCacheFolderError):
        digest, _, text = regular_file.read(_file(kind, root, folder), _LARGEST).partition(b"\n")
        if digest == _digest(key, text):
            return strictjson.loads(text)
    return None


def keep(kind: str, root: Path, key: str, document: Any, folder: Path | None = None) -> None:
    """Write a project's document. Without a writable cache folder, do nothing."""
    text = json.dumps(document).encode()
    with suppress(OSError, NoCacheFolderError):
        file = _file(kind, root, folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
        beside.write_bytes(_digest(key, text) + b"\n" + text)
        beside.replace(file)


def _digest(key: str, text: bytes) -> bytes:
    return hashlib.sha256(os.fsencode(key) + b"\n" + text).hexdigest().encode()


def _file(kind: str, root: Path, folder: Path | None) -> Path:
    return (folder or cache_folder()) / f"{kind}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.json"
