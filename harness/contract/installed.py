"""Claims from installed distributions. Each installs a project's folders as `harness_claims/NAME` on `sys.path`.

Claims are found by path, as in a namespace package. No metadata is read and nothing is imported, so that `harness list`
stays fast.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path, PurePosixPath

__all__ = ["PACKAGE", "claims_roots", "is_own", "or_installed", "root_of", "source_file", "source_name"]

PACKAGE = "harness_claims"


def claims_roots() -> tuple[Path, ...]:
    """Return the folders of installed claims with contracts/, in the order of `sys.path`, then by name."""
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
    """Return the folder of installed claims that contains a file; None if none does."""
    return next((root for root in claims_roots() if Path(os.path.realpath(path)).is_relative_to(root)), None)


def or_installed(file: Path) -> Path:
    """Return the file if it exists, else the file of that name from installed claims, else the file unchanged."""
    if file.exists():
        return file
    return next((place for root in claims_roots() if (place := root / file).is_file()), file)


def source_name(file: Path, root: Path) -> str:
    """Return the name of a source file in evidence: its path relative to the project's root.

    A file of installed claims has the name "harness_claims/NAME/…".
    """
    for claims in claims_roots():
        if file.is_relative_to(claims):
            return f"{PACKAGE}/{claims.name}/{file.relative_to(claims).as_posix()}"
    return file.relative_to(root).as_posix()


def is_own(name: str) -> bool:
    """Whether a name in evidence belongs to the project itself, not to installed claims."""
    return not name.startswith(f"{PACKAGE}/")


def source_file(name: str, root: Path) -> Path:
    """Return the file of a name in evidence, below the project's root or installed claims. It need not exist.

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
