"""F-CUTLASS-UPGRADE-001: an upgrade of cutlass-dsl is complete only if the old version was removed before.

pip installs the wheels of a folder in virtual environments of the trial.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from harness import NotMeasured, Trial

_WHEELS = "cutlass_dsl_wheels"
"""A folder on PYTHONPATH with the wheels of both versions and of their requirements."""
_SECONDS = 200.0


class Upgrade(Protocol):
    """The upgrade of a package; built as `Subject(setting)`."""

    def steps(self, package: str, version: str) -> Sequence[Sequence[str]]:
        """Return the commands of pip in order, each without `pip`, that leave the package in that version."""
        ...


def falsify(trial: Trial[Upgrade]) -> None:
    """Install the old version; upgrade directly in one environment, and as the subject says in another."""
    package, old, new = (trial.parameters[name] for name in ("package", "old", "new"))
    straight, own = trial.workspace / "straight", trial.workspace / "own"
    _run([sys.executable, "-m", "venv", "--without-pip", str(straight)])
    _pip(straight, ["install", f"{package}=={old}"])
    shutil.copytree(straight, own, symlinks=True)
    before = _missing(straight)
    _pip(straight, ["install", f"{package}=={new}"])
    with trial.subject_fault():
        steps = trial.subject.steps(package, new)
    for step in steps:
        _pip(own, step)
    installed = {distribution.name: distribution.version for distribution in distributions(path=[str(_site(own))])}
    trial.measure(
        missing_before=len(before),
        missing_straight=len(_missing(straight)),
        missing=_missing(own)[:20],
        version=installed.get(package, ""),
        has_module=(_site(own) / trial.parameters["module"]).is_file(),
    )
    trial.resolve(device="cpu")


def _missing(place: Path) -> list[str]:
    """The files that installed packages list and that do not exist."""
    site = _site(place)
    files = (str(file) for distribution in distributions(path=[str(site)]) for file in distribution.files or ())
    return sorted(file for file in files if not file.endswith(".pyc") and not (site / file).exists())


def _site(place: Path) -> Path:
    (folders,) = place.glob("lib/python3*/site-packages")
    return folders


def _pip(place: Path, arguments: Sequence[str]) -> None:
    spec = find_spec(_WHEELS)
    if spec is None or not spec.submodule_search_locations:
        raise NotMeasured(f"{_WHEELS} is not on PYTHONPATH")
    command = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), *arguments]
    if arguments[0] == "install":
        wheels = str(Path(next(iter(spec.submodule_search_locations))).absolute())
        command += ["--no-index", "--find-links", wheels, "--no-compile"]
    _run(command)


def _run(command: Sequence[str]) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("PIP_")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, env=clean)
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"{command[2]} did not end within {_SECONDS:g} s") from error
    print(done.stdout[-1000:], done.stderr[-1000:], flush=True)
    if done.returncode:
        raise NotMeasured(f"{' '.join(command[1:4])} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
