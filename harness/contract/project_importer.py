"""Imports the code of a claim from its own project, even if another project has packages of the same name.

    packages = install(folders, others)
    packages.add("falsifiers")
    module = import_other("falsifiers.mine")

A claim of an installed distribution can judge code of the user's project, so a process can import from two projects
that both have a package `falsifiers`. The claim's project has the plain names. A module of the other project becomes a
submodule of the package OTHER. Its absolute imports look in its own project first.

Cached bytecode is never read; see `harness.execution.sources`.

    plant(patches)
    resolve_own("falsifiers.mine.reference:Trainer")  # a mutant: its module is compiled with the patches
"""

from __future__ import annotations

import ast
import builtins
import importlib
import linecache
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, final

from harness.contract.patch import Patch, patched

__all__ = ["OTHER", "import_other", "install", "module_file", "plant"]

OTHER: Final = "harness_other_project"
"""The package that contains the modules of the other project."""

_HARNESS: Final = str(Path(__file__).parents[1])
_patches: dict[str, tuple[Patch, ...]] = {}
"""Patches by module."""
_compiled: dict[str, CodeType] = {}
"""Compiled code of unpatched files. A mutant's process imports the project again, but compiles it only once."""


def install(folders: Sequence[Path], others: Sequence[Path] = ()) -> set[str]:
    """Install finders for modules in these folders. Call this before any of them is imported.

    Args:
        folders: import roots of the claim's project. They are put first on `sys.path`.
        others: import roots of the project that `import_other` imports from.

    Returns:
        a set to which you add the names of the project's top-level namespace packages. Python would prefer a regular
        package of a library to such a folder.
    """
    for finder in [finder for finder in sys.meta_path if isinstance(finder, _Finder)]:
        sys.meta_path.remove(finder)
    sys.path[:0] = list(map(str, (*folders, *others)))
    own = _Finder(folders)
    place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
    sys.meta_path[place:place] = [own, _OtherFinder(others)] if others else [own]
    return own.packages


def import_other(name: str) -> ModuleType:
    """Import a module from the other project if it has it, else from the claim's project or a library.

    Raises:
        ImportError: there is no such module, or one of its imports fails.
    """
    for finder in sys.meta_path:
        if isinstance(finder, _OtherFinder):
            finder.packages.add(name.partition(".")[0])
            if finder.has(name):
                return importlib.import_module(f"{OTHER}.{name}")
    return importlib.import_module(name)


def plant(patches: Iterable[Patch]) -> None:
    """Unload the project's modules, so that they are imported again with these patches. Call `install` before.

    A later import raises PatchError if a patch does not apply.
    """
    _patches.clear()
    linecache.clearcache()
    for patch in patches:
        _patches[patch.module] = (*_patches.get(patch.module, ()), patch)
    for finder in [finder for finder in sys.meta_path if type(finder) is _Finder]:
        for name in finder.found:
            sys.modules.pop(name, None)


def module_file(name: str, folders: Iterable[Path]) -> Path | None:
    """Return the source file of a module in one of the folders; None if there is none. A package outranks a module."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):  # a path, or the empty name above a top-level module
        return None
    for folder in folders:
        place = os.path.join(folder, *parts)  # faster than a Path
        for candidate in (os.path.join(place, "__init__.py"), f"{place}.py"):
            if os.path.isfile(candidate):  # unlike Path.is_file, it never raises
                return Path(candidate)
    return None


class _Finder:
    """Finds modules below folders. It precedes the finder of `sys.path`, and follows that of built-in modules."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(map(str, folders))
        self._below = tuple(f"{folder}{os.sep}" for folder in self._folders)
        self.packages: set[str] = set()
        self.found: set[str] = set()
        """The modules in the folders."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module in the folders; None for others."""
        places = self._folders if path is None else tuple(filter(self._is_ours, path))
        is_package = name in self.packages if path is None else bool(places)
        spec = self.spec(name, name, places, is_package)
        if spec is not None:
            self.found.add(name)
        return spec

    def spec(self, name: str, plain: str, places: Sequence[str], is_package: bool) -> ModuleSpec | None:
        """Return the spec of a module in one of the places.

        Args:
            name: its name in `sys.modules`.
            plain: its name within its own project.
            is_package: whether a folder without `__init__.py` is a package.
        """
        folders = []
        for place in places:
            base = os.path.join(place, plain.rpartition(".")[2])
            if loader := self._loader(name, os.path.join(base, "__init__")):
                return spec_from_file_location(name, loader.path, loader=loader, submodule_search_locations=[base])
            if loader := self._loader(name, base):
                return spec_from_file_location(name, loader.path, loader=loader)
            if is_package and os.path.isdir(base):
                folders.append(base)
        if not folders:
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = folders
        return spec

    def _loader(self, name: str, beginning: str) -> SourceFileLoader | ExtensionFileLoader | None:
        """Return the loader of the file with this path and a suffix, in Python's order; None if there is no file."""
        for suffix in EXTENSION_SUFFIXES:
            if os.path.isfile(beginning + suffix):
                return ExtensionFileLoader(name, beginning + suffix)
        return self.loader(name, f"{beginning}.py") if os.path.isfile(f"{beginning}.py") else None

    def loader(self, name: str, file: str) -> SourceFileLoader:
        """Return the loader of a source file."""
        return _Loader(name, file)

    def _is_ours(self, folder: str) -> bool:
        below = (folder + os.sep).startswith(self._below)
        return below and "site-packages" not in folder and not folder.startswith(_HARNESS)


@final
class _Loader(SourceFileLoader):
    """Loads a source file of the project, with its patches."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the file, compiled once for the process and its forks, or with patches."""
        if fullname in _patches:
            source = patched(decode_source(self.get_data(self.path)), _patches[fullname])
            # Triton reads a function's source text from linecache.
            linecache.cache[self.path] = (len(source), None, source.splitlines(keepends=True), self.path)
            # The record of sources takes the digest of bytes that are compiled, and of the file if a tree is.
            return compile(ast.parse(source), self.path, "exec", dont_inherit=True)
        if self.path not in _compiled and (code := super().get_code(fullname)) is not None:
            _compiled[self.path] = code
        return _compiled.get(self.path)


@final
class _OtherFinder(_Finder):
    """Finds modules of the other project as submodules of OTHER."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module below OTHER; None for other modules."""
        if name == OTHER:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = []
            return spec
        if not name.startswith(f"{OTHER}."):
            return None
        plain = name.removeprefix(f"{OTHER}.")
        places = self._folders if "." not in plain else tuple(path or ())
        return self.spec(name, plain, places, True)

    def has(self, name: str) -> bool:
        """Whether the other project has a module of this plain name."""
        parents, _, last = name.rpartition(".")
        places = [os.path.join(folder, *parents.split(".")) if parents else folder for folder in self._folders]
        return self.spec(f"{OTHER}.{name}", last, places, name.partition(".")[0] in self.packages) is not None

    def loader(self, name: str, file: str) -> SourceFileLoader:
        """Return the loader of a source file, whose absolute imports look in its own project first."""
        return _OtherLoader(name, file, self)


@final
class _OtherLoader(SourceFileLoader):
    def __init__(self, name: str, file: str, finder: _OtherFinder) -> None:
        super().__init__(name, file)
        self._finder = finder

    def exec_module(self, module: ModuleType) -> None:
        # An import statement calls the `__import__` of the builtins of its module.
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
        super().exec_module(module)

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  # the names of builtins.__import__
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if level or not self._finder.has(name):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = importlib.import_module(f"{OTHER}.{name}")
        if fromlist:  # this imports submodules that the statement names
            return builtins.__import__(module.__name__, globals, locals, fromlist, 0)
        return sys.modules[f"{OTHER}.{name.partition('.')[0]}"]
