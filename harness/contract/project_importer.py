"""Imports the code of a claim from its own project, also where another project has packages of the same name.

    packages = install(folders, others)
    packages.add("falsifiers")
    module = import_other("falsifiers.mine")

Two projects meet in one process when a claim of an installed distribution judges code of the user's project: both may
have a package `falsifiers`. The claim's project has the plain names. A module of the other project is a module below
the package OTHER, and its absolute imports find the modules of its own project first.

Bytecode beside a source file is never read: `harness.execution.sources` denies it.

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
"""The package that holds the modules of the project whose plain names are taken."""

_HARNESS: Final = str(Path(__file__).parents[1])
_patches: dict[str, tuple[Patch, ...]] = {}
"""By module."""
_compiled: dict[str, CodeType] = {}
"""The code of files as they are. A process imports the project anew for a mutant, and compiles it once."""


def install(folders: Sequence[Path], others: Sequence[Path] = ()) -> set[str]:
    """Find modules in these folders from now on. Call this before any of them is imported.

    Args:
        folders: of the claim's project, in their order. They come first on `sys.path`.
        others: of the project whose modules `import_other` imports.

    Returns:
        A set for the names of top-level packages that are the project's even if they have no `__init__.py`. Python
        itself would prefer a package of a library to such a folder.
    """
    for finder in [finder for finder in sys.meta_path if isinstance(finder, _Finder)]:
        sys.meta_path.remove(finder)
    sys.path[:0] = list(map(str, (*folders, *others)))
    own = _Finder(folders)
    place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
    sys.meta_path[place:place] = [own, _OtherFinder(others)] if others else [own]
    return own.packages


def import_other(name: str) -> ModuleType:
    """Return a module of the other project if it has it, else the one of the claim's project or of a library.

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
    """Import the project anew from now on, with these patches. Call `install` before.

    Raises:
        PatchError: on import of a module that a patch does not fit.
    """
    _patches.clear()
    linecache.clearcache()
    for patch in patches:
        _patches[patch.module] = (*_patches.get(patch.module, ()), patch)
    for finder in [finder for finder in sys.meta_path if type(finder) is _Finder]:
        for name in finder.found:
            sys.modules.pop(name, None)


def module_file(name: str, folders: Iterable[Path]) -> Path | None:
    """Return the source file of a module in one of the folders; None if there is none. A package precedes a module."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):  # a path, or the empty name above a top-level module
        return None
    for folder in folders:
        place = folder.joinpath(*parts)
        for candidate in (place / "__init__.py", place.with_suffix(".py")):
            if os.path.isfile(candidate):  # unlike Path.is_file, it never raises
                return candidate
    return None


class _Finder:
    """Finds modules below folders. It is asked before `sys.path`, and after Python's built-in modules."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(map(str, folders))
        self._below = tuple(f"{folder}{os.sep}" for folder in self._folders)
        self.packages: set[str] = set()
        self.found: set[str] = set()
        """The modules that lie in the folders."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """The spec of a module in the folders; None if it is elsewhere."""
        places = self._folders if path is None else tuple(filter(self._is_ours, path))
        is_package = name in self.packages if path is None else bool(places)
        spec = self.spec(name, name, places, is_package)
        if spec is not None:
            self.found.add(name)
        return spec

    def spec(self, name: str, plain: str, places: Sequence[str], is_package: bool) -> ModuleSpec | None:
        """The spec of a module in one of the places.

        Args:
            name: what it is called in `sys.modules`.
            plain: what its own project calls it.
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
        """The loader of the first file with this beginning, in Python's order of suffixes; None if there is no file."""
        for suffix in EXTENSION_SUFFIXES:
            if os.path.isfile(beginning + suffix):
                return ExtensionFileLoader(name, beginning + suffix)
        return self.loader(name, f"{beginning}.py") if os.path.isfile(f"{beginning}.py") else None

    def loader(self, name: str, file: str) -> SourceFileLoader:
        """What loads a source file."""
        return _Loader(name, file)

    def _is_ours(self, folder: str) -> bool:
        below = (folder + os.sep).startswith(self._below)
        return below and "site-packages" not in folder and not folder.startswith(_HARNESS)


@final
class _Loader(SourceFileLoader):
    """Loads a source file of the project, with its patches."""

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of the file, compiled once for the process and its forks, or with patches."""
        if fullname in _patches:
            source = patched(decode_source(self.get_data(self.path)), _patches[fullname])
            # Triton compiles the text of a function, which it gets from here.
            linecache.cache[self.path] = (len(source), None, source.splitlines(keepends=True), self.path)
            # The record of sources takes the digest of bytes that are compiled, and of the file if a tree is.
            return compile(ast.parse(source), self.path, "exec", dont_inherit=True)
        if self.path not in _compiled and (code := super().get_code(fullname)) is not None:
            _compiled[self.path] = code
        return _compiled.get(self.path)


@final
class _OtherFinder(_Finder):
    """Finds the modules of the other project, below the package OTHER."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """The spec of a module below OTHER; None for any other module."""
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
        """Whether the project has a module of this plain name."""
        parents, _, last = name.rpartition(".")
        places = [os.path.join(folder, *parents.split(".")) if parents else folder for folder in self._folders]
        return self.spec(f"{OTHER}.{name}", last, places, name.partition(".")[0] in self.packages) is not None

    def loader(self, name: str, file: str) -> SourceFileLoader:
        """The loader of a source file. The file's absolute imports find its own project first."""
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
