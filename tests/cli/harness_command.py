"""Driving the installed command as a user would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.preloaded import Preloaded

COMMAND = [sys.executable, "-m", "harness"]
_ROOT = Path(__file__).parents[2]
_PRELOADED = Preloaded()
_PYTHON = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}


def environment(folder: Path) -> dict[str, str]:
    """This process's environment, with caches and leases of its own."""
    places = {"HARNESS_CACHE_DIR": str(folder / "cache"), "HARNESS_LEASE_DIR": str(folder / "leases")}
    return {**os.environ, **places, "NO_COLOR": "1"}


def harness(
    folder: Path, *arguments: str, seconds: float = 120.0, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `harness` in a folder and wait for it, in a fork of a process that has imported it already.

    Args:
        home: the folder of its caches and leases; by default, the folder in which it runs.
    """
    variables = environment(home or folder)
    if {name: value for name, value in variables.items() if name.startswith("PYTHON")} == _PYTHON:
        return _PRELOADED.run(arguments, folder, variables, seconds)
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=variables, capture_output=True, text=True, timeout=seconds
    )


def complaint(done: subprocess.CompletedProcess[str], folder: Path) -> str:
    """Return a command's standard error for a snapshot, without names that differ between runs."""
    text = " ".join(done.stderr.split()).replace(str(folder), "FOLDER").replace(str(_ROOT), "ROOT")
    text = re.sub(r"\d{4}-\d\d-\d\dT\d{6}Z-[\w.-]+", "RUN", text)
    return re.sub(r"\bpid \d+", "pid N", text)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `harness` in a folder, in its own process group, as a shell does."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )


def imported(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run `harness` in a folder; return the result and the top-level modules that it has imported at its end."""
    script = (
        "import sys\n"
        "from harness.cli import main\n"
        f"sys.argv = ['harness', *{list(arguments)!r}]\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120
    )
    return done, set(done.stderr.split())
