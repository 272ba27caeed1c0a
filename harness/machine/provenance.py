"""The software that runs: the interpreter, every installed distribution, the driver, and the harness itself."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Collection, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base.version import VERSION
from harness.machine import git

if TYPE_CHECKING:
    from harness.machine.host import Host

__all__ = ["NOT_INSTALLED", "distributions", "harness_commit", "harness_identity", "software"]

NOT_INSTALLED = "not installed"
"""The version in bundles of older versions that ran from a source tree."""
_FOLDER = Path(__file__).parents[1]


def software(host: Host) -> dict[str, Any]:
    """Return the software of a machine that a bundle names under `software`, as JSON values."""
    return {
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "build": " ".join(platform.python_build()),
            "compiler": platform.python_compiler(),
            "executable": sys.executable,
        },
        "platform": platform.platform(),
        "machine": platform.machine(),
        "kernel": f"{platform.system()} {platform.release()} {platform.version()}",
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "driver": host.driver,
        "cuda_driver_version": host.cuda_driver_version,
        "driver_reason": host.gpu_reason if host.driver is None else None,
        "distributions": distributions(),
    }


def distributions(paths: Sequence[str] | None = None) -> dict[str, str]:
    """Return the version of every installed distribution by its normalised name, sorted. The first on the path wins.

    Names and versions are read from the names of the `.dist-info` folders, which the wheel format fixes as
    name-version. That is a hundred times faster than parsing each METADATA file, and every run does it.
    """
    versions: dict[str, str] = {}
    for path in sys.path if paths is None else paths:
        try:
            names = os.listdir(path or ".")
        except OSError:  # a zip archive, or a folder that is gone
            continue
        for name in names:
            if match := re.fullmatch(r"([^~].*?)-([^-]+)\.dist-info|(.+?)-([^-]+)(?:-py[\d.]+)?\.egg-info", name):
                distribution = re.sub(r"[-_.]+", "-", match[1] or match[3]).lower()
                versions.setdefault(distribution, match[2] or match[4])
    return dict(sorted(versions.items()))


@cache
def harness_identity(without: Collection[str] = ()) -> dict[str, str]:
    """Return the version of the harness, a digest of its source files, and Python's version.

    The digest tells development trees of the same version apart.

    Args:
        without: names of packages of the harness whose files the digest leaves out.
    """
    digest, folder = sha256(), _FOLDER
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder)
        if place.parts[0] not in without:
            digest.update(f"{place.as_posix()}\0".encode() + path.read_bytes())
    return {"version": VERSION, "sha256": digest.hexdigest(), "python": sys.version.split()[0]}


@cache
def harness_commit(folder: Path = _FOLDER) -> dict[str, str]:
    """Return the commit of the source tree that the harness was imported from; empty if it is none, or git cannot tell.

    Args:
        folder: the package's.
    """
    if not (folder.parent / ".git").exists():  # an installed package may lie in the checkout of another project
        return {}
    root, revision = folder.parent, git.commit(folder).value
    if revision is None:
        return {}
    files = {path.relative_to(root).as_posix(): sha256(path.read_bytes()) for path in folder.rglob("*.py")}
    differing = git.differing(root, revision, {name: digest.hexdigest() for name, digest in files.items()})
    return {"commit": revision if differing.value == [] else f"{revision}-dirty"}
