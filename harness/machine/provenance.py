"""What ran: the interpreter, every installed distribution, the driver, and the commit the code came from."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from harness.machine import nvml, timebox

if TYPE_CHECKING:
    from harness.machine.host import Host

__all__ = ["NOT_INSTALLED", "Commit", "commit", "distributions", "harness_identity", "is_untracked", "software"]

NOT_INSTALLED = "not installed"
"""The version of a harness that runs from its sources."""


@final
@dataclass(frozen=True, slots=True)
class Commit:
    """The state of a git checkout; what cannot be told is None, with the reason."""

    revision: str | None
    dirty: bool | None
    """Whether a file that git does not ignore differs from the commit or is not in it."""
    reason: str | None = None


def software(host: Host | None = None) -> dict[str, Any]:
    """The software that a bundle's environment.json names, as JSON values.

    Args:
        host: spares asking the driver again where it was probed already.
    """
    driver, cuda, reason = (
        (host.driver, host.cuda_driver_version, host.gpu_reason) if host is not None else _driver_versions()
    )
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
        "driver": driver,
        "cuda_driver_version": cuda,
        "driver_reason": reason if driver is None else None,
        "distributions": distributions(),
    }


def distributions(paths: Sequence[str] | None = None) -> dict[str, str]:
    """Every installed distribution's version by its normalised name, sorted; the first on the path wins.

    Read from the names of the `.dist-info` folders, which the wheel format fixes as name-version: a hundred times
    faster than parsing each METADATA file, and this is paid at every run.
    """
    found: dict[str, str] = {}
    for path in sys.path if paths is None else paths:
        try:
            names = os.listdir(path or ".")
        except OSError:  # a zip archive, or a folder that is gone
            continue
        for name in names:
            if match := re.fullmatch(r"([^~].*?)-([^-]+)\.dist-info|(.+?)-([^-]+)(?:-py[\d.]+)?\.egg-info", name):
                distribution = re.sub(r"[-_.]+", "-", match[1] or match[3]).lower()
                found.setdefault(distribution, match[2] or match[4])
    return dict(sorted(found.items()))


def commit(root: Path, *, outputs: Sequence[str] = ("evidence",), seconds: float = 10.0) -> Commit:
    """The commit that is checked out at `root`, by asking git.

    Args:
        root: any folder inside a checkout; only what lies under it counts as dirty.
        outputs: folders under root that runs write to, so that a bundle does not make the next run dirty.
        seconds: how long git may take.
    """
    excluded = [f":(exclude){folder}" for folder in outputs]
    answer = _git_status(root, ["--branch", "--", ".", *excluded], seconds)
    if answer.value is None:
        return Commit(None, None, answer.reason)
    lines = answer.value.splitlines()
    oid = next((line.removeprefix("# branch.oid ") for line in lines if line.startswith("# branch.oid ")), "(unknown)")
    dirty = any(not line.startswith("#") for line in lines)
    if not re.fullmatch(r"[0-9a-f]{40,64}", oid):
        return Commit(None, dirty, "the repository has no commit yet")
    return Commit(oid, dirty)


def is_untracked(path: Path, seconds: float = 10.0) -> bool:
    """Whether a file lies in a git checkout that neither has it nor ignores it; False where git cannot tell."""
    answer = _git_status(path.parent, ["--", f":(literal){path.name}"], seconds)
    return answer.value is not None and answer.value.startswith("? ")


def _git_status(folder: Path, arguments: Sequence[str], seconds: float) -> timebox.Answer[str]:
    # A hook or a wrapper may point GIT_DIR elsewhere; and looking must not take the index lock from a person at work.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = ["git", "-C", str(folder), "status", "--porcelain=v2", "--untracked-files=normal", *arguments]
    return timebox.run(command, seconds, environment=environment)


@cache
def harness_identity() -> dict[str, str]:
    """The version of the harness, and a digest over its own source files, for development trees share a version."""
    from importlib.metadata import PackageNotFoundError, version  # a command that only looks around needs none of it

    try:
        number = version("falsifier-harness")
    except PackageNotFoundError:
        number = NOT_INSTALLED
    digest, folder = sha256(), Path(__file__).parents[1]
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return {"version": number, "sha256": digest.hexdigest(), "python": sys.version.split()[0]}


def _driver_versions() -> tuple[str | None, str | None, str | None]:
    session = nvml.connect()
    if isinstance(session, str):
        return None, None, session
    driver = session.ask("nvmlSystemGetDriverVersion")
    cuda = session.ask("nvmlSystemGetCudaDriverVersion_v2")
    return driver.value, nvml.cuda_version(cuda.value), driver.reason
