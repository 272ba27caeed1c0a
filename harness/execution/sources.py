"""The source files of a project that a process uses: modules that it imports, and files that it reads beside them.

A kernel in CUDA C or WGSL is code under test too, and no import names it. So an audit hook records every file that is
opened. Files in or below the folder of an imported module count as sources; a data set elsewhere is not code. Files
that only a library or another process opens are not recorded.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from harness.base import regular_file
from harness.contract.installed import claims_roots

__all__ = ["Sources"]

LARGEST: Final = 1 << 20
"""Bytes. A larger file, such as a checkpoint beside the code, is not a source."""
_MOST: Final = 10_000
"""Most files that are remembered, because a subject may open any number."""
_EVENTS = frozenset({"open", "os.rename"})
_HARNESS = Path(__file__).parents[1]
_WRITES = os.O_WRONLY | os.O_RDWR


@final
class Sources:
    """The sources that this process and its ancestors have used so far."""

    def __init__(self, root: Path) -> None:
        """Args:
        root: the root of the project. Files outside of it, and of installed claims, are not sources.
        """
        self._root = root
        self._roots = (*claims_roots(), root)  # in this order, because installed claims may lie inside the project
        self._beginnings = tuple(f"{one}{os.sep}" for one in self._roots)
        self._modules: set[str] = set()
        self._folders: set[Path] = set()
        self._far: list[str] = []
        """Files read outside of every known module's folder. Their module may be imported later."""
        self._opened: list[str] = []
        """Since the last report."""
        self._heard: set[str] = set()
        self._written: set[str] = set()
        self._told: set[str] = set()
        self._modules_seen = 0
        self._elsewhere: list[str] = []
        """Names of files that another process of the trial used, since the last report."""

    def listen(self) -> None:
        """Record every file that is opened from now on. Call this once: an audit hook cannot be removed."""

        def hear(event: str, arguments: tuple[Any, ...]) -> None:
            # PyTorch calls id() for every parameter in every step, which is an event too. Ignoring one costs 0.1 us.
            if event in _EVENTS:
                self._hear(event, arguments)

        sys.addaudithook(hear)

    def news(self) -> dict[str, str]:
        """The sha256 of the sources that are new since the last call, by path from the project's root."""
        if (
            len(sys.modules) == self._modules_seen and not self._opened and not self._elsewhere
        ):  # called before every message of a trial
            return {}
        self._modules_seen = len(sys.modules)
        folders = len(self._folders)
        files = self._imported()
        files |= self._read(again=len(self._folders) > folders)
        files |= self._read_elsewhere()
        found: dict[str, str] = {}
        for file in sorted(files):
            name = self._name(file)
            if name not in self._told:
                with suppress(OSError):
                    found[name] = regular_file.sha256(file)
        self._told |= set(found)
        return found

    def add(self, names: Any) -> None:
        """Add the files that another process says it used. Their digests are made here.

        Raises:
            TypeError: these are no names.
        """
        if type(names) is not list or not all(type(name) is str for name in names):
            raise TypeError("the names of files must be a list of texts")
        self._elsewhere += names[: max(0, _MOST - len(self._told))]

    def path_of(self, file: Path) -> str:
        """The path of the project's own code, from the project's root. Empty for the harness and for libraries."""
        root = None if file.is_relative_to(_HARNESS) else self._root_of(file)
        inside = None if root is None else file.relative_to(root)
        return "" if inside is None or "site-packages" in inside.parts else inside.as_posix()

    def _root_of(self, file: Path) -> Path | None:
        return next((root for root in self._roots if file.is_relative_to(root)), None)

    def _name(self, file: Path) -> str:
        return file.relative_to(self._root_of(file) or self._root).as_posix()

    def _read_elsewhere(self) -> set[Path]:
        names, self._elsewhere = self._elsewhere, []
        files: set[Path] = set()
        for name in names:
            for root in self._roots:
                file = root / name
                with suppress(OSError, ValueError):
                    within = ".." not in file.parts and file.is_relative_to(root)
                    if within and file.is_file() and file.stat().st_size <= LARGEST:
                        files.add(file)
                        break
        return files

    def _imported(self) -> set[Path]:
        """The files of newly imported modules, except the harness's own."""
        names = set(sys.modules) - self._modules
        self._modules |= names
        files: set[Path] = set()
        for name in names:
            path = getattr(sys.modules.get(name), "__file__", None)
            if path and self.path_of(Path(path)):
                files.add(Path(path))
        self._folders |= {file.parent for file in files}
        return files

    def _read(self, *, again: bool) -> set[Path]:
        """The files that were only read, in or below a module's folder (for a module in the root: only beside it).

        Args:
            again: also check the files that had no module's folder before.
        """
        files: set[Path] = set()
        opened, self._opened = self._opened, []
        if again:
            opened, self._far = [*self._far, *opened], []
        for name in opened:
            file = Path(name)
            near = file.parent in self._folders or any(
                folder in self._folders for folder in file.parents if folder not in self._roots
            )
            if not near:
                self._far.append(name)
            elif name not in self._written:
                with suppress(OSError):
                    if file.is_file() and file.stat().st_size <= LARGEST:
                        files.add(file)
        return files

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record an opened file. Never raises, because that would break the open of the code under test."""
        with suppress(Exception):
            writes = event == "os.rename"
            path = arguments[1] if writes else arguments[0]
            if isinstance(path, int):
                return
            name = os.path.abspath(os.fsdecode(path))
            if not name.startswith(self._beginnings) or name.endswith((".py", ".pyc")):
                return
            if len(self._heard) + len(self._written) >= _MOST:
                return
            if writes or arguments[2] & _WRITES:
                self._written.add(name)
            elif name not in self._heard:
                self._heard.add(name)
                self._opened.append(name)
