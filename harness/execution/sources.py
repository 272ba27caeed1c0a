"""Records the source files of a project that a process uses: code that it compiles or loads, and files beside it.

An audit hook sees all of them, whichever loader is used, and computes each digest at once:

- Python source, from the bytes that Python compiles. Cached bytecode of the project cannot be opened, so loaders
  always compile the source, and a stale `.pyc` never runs.
- Extension modules and shared libraries, when they are loaded.
- Other files that are opened in or below a folder with such code. A kernel in CUDA C or WGSL is code under test too,
  but is not imported. Data sets elsewhere are not code.

`changed` finds files that changed after their digests were computed. Files that only a library or another process opens
are not recorded.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, final

from harness.base import regular_file
from harness.contract.installed import claims_roots, source_file, source_name

__all__ = ["Sources", "changed"]

_T = TypeVar("_T")
LARGEST: Final = 1 << 20
"""Maximum bytes of a file that is read, so that a checkpoint is no source. Code that is loaded may be larger."""
_MOST: Final = 10_000
"""Maximum number of recorded files, because a subject may open any number."""
_HARNESS = f"{Path(__file__).parents[1]}{os.sep}"
_MOST_DATA: Final = 200
_MACHINE = tuple({f"{sys.prefix}/", f"{sys.base_prefix}/", "/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib"})
"""Folders of files that belong to the machine, not to the trial."""
_WRITES = os.O_WRONLY | os.O_RDWR
_LIBRARIES = tuple(f"{prefix}{os.sep}" for prefix in {sys.prefix, sys.base_prefix})
_TWO_CONTENTS: Final = "0" * 64
"""Replaces the digest of a file that the process used twice with different contents."""


class _NoBytecode(PermissionError):
    """Raised for cached bytecode. Python's loaders then compile the source, as for an unreadable folder."""


@final
class Sources:
    """The sources that this process and its ancestors have used so far."""

    def __init__(self, root: Path) -> None:
        """Args:
        root: the root of the project. Only files in it and in installed claims are sources.
        """
        self._root = root
        self._roots = (*claims_roots(), root)  # in this order, because installed claims may lie inside the project
        self._beginnings = tuple(f"{root}{os.sep}" for root in self._roots)
        self._folders: set[str] = set()
        self._far: list[str] = []
        """Files that were read in folders without code. Code may be loaded from there later."""
        self._heard: set[str] = set()
        self._written: set[str] = set()
        self._digests: dict[str, str] = {}
        self._news: deque[tuple[str, str]] = deque()
        self._data: set[str] = set()
        """Other files that were opened for reading."""
        self._new_data: deque[str] = deque()  # any thread may open a file while another one reports
        self._libraries: set[str] = set()

    def listen(self) -> None:
        """Start recording. Call this once: an audit hook cannot be removed."""
        hear: dict[str, Callable[..., None]] = {
            "open": self._opened,
            "os.rename": lambda source, target, *_: self._write(target),
            "compile": self._compiled,
            "import": lambda module, file, *_: self._load(file),
            "ctypes.dlopen": lambda file: self._load(file),
        }

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            # PyTorch calls id() for every parameter in every step, which is an event too. Ignoring one costs 0.1 us.
            if event in hear:
                try:
                    hear[event](*arguments)
                except _NoBytecode:
                    raise
                except Exception:  # nothing else may break what the code under test does
                    return

        sys.addaudithook(hook)
        sys.dont_write_bytecode = True  # no loader could read it

    def hear_libraries(self) -> None:
        """Record files that libraries open in Rust, without a Python event. Call this again after imports."""
        if "safetensors" in sys.modules and "safetensors" not in self._libraries:
            self._libraries.add("safetensors")
            with suppress(Exception):
                # The class has no __init__ of its own, and opens the file before.
                sys.modules["safetensors"].safe_open.__init__ = lambda reader, filename, *_, **__: self._note(filename)
        if "tokenizers" in sys.modules and "tokenizers" not in self._libraries:
            self._libraries.add("tokenizers")
            with suppress(Exception):
                kind = sys.modules["tokenizers"].Tokenizer
                from_file = kind.from_file

                def noted(path: str) -> Any:
                    self._note(path)
                    return from_file(path)

                kind.from_file = staticmethod(noted)

    def _note(self, file: Any) -> None:
        with suppress(Exception):  # the library refuses it
            self._opened(file, None, 0)

    def news(self) -> dict[str, str]:
        """Return the SHA-256 of sources that are new since the last call, by name."""
        return dict(_taken(self._news))

    def data(self) -> list[str]:
        """Return the paths of data files that were opened for reading since the last call."""
        return list(filter(os.path.isfile, _taken(self._new_data)))

    def add(self, names: Any) -> None:
        """Add files that another process reports as used. Their digests are computed here.

        Raises:
            TypeError: these are not names.
        """
        if type(names) is not list or not all(type(name) is str for name in names):
            raise TypeError("the names of files must be a list of texts")
        for name in names:
            with suppress(OSError, ValueError):
                file = source_file(name, self._root)
                if len(self._digests) < _MOST and file.stat().st_size <= LARGEST:
                    self._tell(str(file), regular_file.sha256(file))

    def merge(self, paths: Any) -> None:
        """Add sources with digests, as an isolated subject's process reports them.

        A false digest differs from the file, so the trial becomes NOT_MEASURED.

        Raises:
            TypeError: these are not digests by name.
        """
        if type(paths) is not dict or not all(type(text) is str for pair in paths.items() for text in pair):
            raise TypeError("the sources must be digests by name")
        for name, digest in paths.items():
            if len(self._digests) < _MOST:
                self._tell(str(source_file(name, self._root)), digest)

    def path_of(self, file: Path) -> str:
        """Return the name of a source file in evidence; empty for files of the harness and of libraries."""
        return source_name(file, self._root) if self._is_ours(str(file)) else ""

    def _is_ours(self, file: str) -> bool:
        if not file.startswith(self._beginnings) or file.startswith(_HARNESS):
            return False
        root = next(beginning for beginning in self._beginnings if file.startswith(beginning))
        is_library = any(file.startswith(library) and not root.startswith(library) for library in _LIBRARIES)
        return not is_library and "site-packages" not in file[len(root) :].split(os.sep)

    def _tell(self, file: str, digest: str) -> None:
        """Store a digest. If it differs from the stored one, the file has changed, and is reported again."""
        if self._digests.get(file) != digest:
            name = source_name(Path(file), self._root)
            self._news.append((name, digest if file not in self._digests else _TWO_CONTENTS))
            self._digests[file] = digest

    def _compiled(self, source: Any, file: Any) -> None:
        """Handle the event that Python compiles a source file."""
        name = os.path.abspath(os.fsdecode(file))
        if self._is_ours(name) and os.path.isfile(name):  # and not "<string>"
            is_whole = isinstance(source, bytes | bytearray | memoryview) and not _is_part(bytes(source), Path(name))
            self._code(name, hashlib.sha256(source).hexdigest() if is_whole else regular_file.sha256(Path(name)))

    def _load(self, file: Any) -> None:
        """Handle the event that an extension module or a shared library is loaded."""
        name = os.path.abspath(os.fsdecode(file)) if file else ""
        if self._is_ours(name):
            self._code(name, regular_file.sha256(Path(name)))

    def _code(self, name: str, digest: str) -> None:
        self._tell(name, digest)
        folder = os.path.dirname(name)
        if folder not in self._folders:
            self._folders.add(folder)
            far, self._far = self._far, []
            for path in far:
                self._read(path)

    def _opened(self, path: Any, mode: Any, flags: Any) -> None:
        """Handle the event that a file is opened."""
        name = "" if isinstance(path, int) else os.path.abspath(os.fsdecode(path))
        reads = name and not flags & _WRITES and not name.startswith(_MACHINE) and not name.endswith((".py", ".pyc"))
        if reads and name not in self._data and len(self._data) < _MOST_DATA:
            self._data.add(name)
            self._new_data.append(name)
        if not name.startswith(self._beginnings):
            return
        if name.endswith(".pyc") and self._is_ours(name):
            raise _NoBytecode(errno.EACCES, "the harness runs a project's code from its source", name)
        if flags & _WRITES:
            self._write(name)
        elif name not in self._heard and self._has_room():
            self._heard.add(name)
            self._read(name)

    def _write(self, path: Any) -> None:
        name = os.path.abspath(os.fsdecode(path))
        if name.startswith(self._beginnings) and self._has_room():
            self._written.add(name)

    def _has_room(self) -> bool:
        return len(self._heard) + len(self._written) < _MOST

    def _read(self, name: str) -> None:
        """Record a file in or below a folder with code (directly in it, if the folder is an import root)."""
        file = Path(name)
        near = str(file.parent) in self._folders or any(
            str(folder) in self._folders for folder in file.parents if folder not in self._roots
        )
        if not near:
            self._far.append(name)
        elif name not in self._written:
            with suppress(OSError):
                if file.is_file() and file.stat().st_size <= LARGEST:
                    self._tell(name, regular_file.sha256(file))


def _is_part(source: bytes, file: Path) -> bool:
    """Whether this is a part of a line of the file, which Python compiles to show the traceback of a thread."""
    return b"\n" not in source and file.stat().st_size > len(source) and source in regular_file.read(file)


def _taken(news: deque[_T]) -> Iterator[_T]:
    """Yield and remove the items of a deque. Other threads may append meanwhile."""
    while news:
        yield news.popleft()


def changed(sources: Mapping[str, str], root: Path) -> list[str]:
    """Return the names of sources whose files differ from their digests, sorted."""
    return sorted(name for name, digest in sources.items() if _digest(name, root) != digest)


def _digest(name: str, root: Path) -> str | None:
    try:
        return regular_file.sha256(source_file(name, root))
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None
