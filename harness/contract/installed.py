"""Claims that installed distributions bring: each has a project's folders below `harness_claims/NAME` on `sys.path`.

A folder is found by its place alone, as plugins in a namespace package are: no metadata is read, and nothing is
imported. `harness list` has no time for more.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path, PurePosixPath

__all__ = ["PACKAGE", "claims_roots", "is_own", "or_installed", "root_of", "source_file", "source_name"]

PACKAGE = "harness_claims"


def claims_roots() -> tuple[Path, ...]:
    """The folders of installed claims, in the order of `sys.path` and then by name. Each has contracts/ in it."""
    return _roots(tuple(entry for entry in sys.path if entry))


@lru_cache(maxsize=8)
def _roots(path: tuple[str, ...]) -> tuple[Path, ...]:
    roots: dict[Path, None] = {}
    for entry in path:
        try:
            names = sorted(os.listdir(os.path.join(entry, PACKAGE)))
        except OSError:
            continue
        for name in names:
            root = Path(os.path.realpath(Path(entry, PACKAGE, name)))
            if (root / "contracts").is_dir():
                roots.setdefault(root)
    return tuple(roots)


def root_of(path: Path) -> Path | None:
    """The folder of installed claims that a file is in; None if it is in none."""
    return next((root for root in claims_roots() if Path(os.path.realpath(path)).is_relative_to(root)), None)


def or_installed(file: Path) -> Path:
    """The file; if there is none, the installed one of that name below a folder of claims, if there is one."""
    if file.exists():
        return file
    return next((place for root in claims_roots() if (place := root / file).is_file()), file)


def source_name(file: Path, root: Path) -> str:
    """The name of a source file in evidence: its path from the project's root.

    A file of installed claims is named "harness_claims/NAME/…", so it is never taken for one of the project.
    """
    for claims in claims_roots():
        if file.is_relative_to(claims):
            return f"{PACKAGE}/{claims.name}/{file.relative_to(claims).as_posix()}"
    return file.relative_to(root).as_posix()


def is_own(name: str) -> bool:
    """Whether a name in evidence is that of a file of the project itself."""
    return not name.startswith(f"{PACKAGE}/")


def source_file(name: str, root: Path) -> Path:
    """The file of a name in evidence, which need not exist. It is below the project's root or that of installed claims.

    Raises:
        ValueError: the name leads out of the project.
    """
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts:
        raise ValueError(f"{name!r} leads out of the project")
    if place.parts[:1] == (PACKAGE,):
        for claims in claims_roots():
            if claims.name == place.parts[1]:
                return claims.joinpath(*place.parts[2:])
    return root / place
