"""A project with evidence, which a case makes hostile, and what every command must keep to.

world.evidence / "PMAT-1"  # changed by a case
world.run("verify", "evidence")  # no traceback, no hang, nothing outside, no output without end
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import environment
from tests.cli.preloaded import Preloaded
from tests.contracts import FALSIFIER, IDENTIFIER, document, healthy, write_project
from tests.evidence.factory import MUTANTS, copy_of, sealed

__all__ = ["CLAIM", "Case", "World", "cases", "made_world"]

CLAIM, ISSUE = IDENTIFIER, "DEMO-1"
PASSED, FAILED = "2026-11-20T201503Z-cpu-aaaaaa", "2026-11-20T201503Z-cpu-bbbbbb"
_SECONDS, _CPU_SECONDS = 100.0, 20
"""A busy machine may make a command wait. None may work for longer than the second number."""
_MEMORY = 3 << 30
"""Address space of a command, beyond that of a process with all imports."""
_LONGEST_OUTPUT = 1 << 20
_STATUSES = {int(status) for status in ExitStatus}
_TRACES = ("Traceback (most recent call last)", "this is a defect of the harness", "Unraisable", "Exception ignored")
_STEERS = ("\x1b", "\x07", "\u202e")
"""What steers a terminal, in names and texts of a file."""
_NIGHTLY = 1000
"""Examples of the hypothesis profile of `make fuzz`, or more."""
_FALLBACK = "\n\nclass Fallback(Sorter):\n    pass\n"


@dataclass
class World:
    """A folder with a project, with two bundles of its claim, and with what lies outside."""

    folder: Path

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def evidence(self) -> Path:
        return self.project / "evidence"

    @property
    def passed(self) -> Path:
        """A sound bundle that says PASS."""
        return self.evidence / ISSUE / CLAIM / PASSED

    @property
    def failed(self) -> Path:
        """A sound bundle that says FAIL."""
        return self.evidence / ISSUE / CLAIM / FAILED

    @property
    def contract(self) -> Path:
        return self.project / "contracts" / "demo" / CLAIM / "contract.json"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the project. It keeps to the rules, whatever it was given."""
        before = self._outside()
        done = _preloaded().run(arguments, self.project, environment(self.folder / "home"), _SECONDS)
        said = done.stdout + done.stderr
        assert not any(trace in said for trace in _TRACES), said[-4000:]
        assert not any(sign in said for sign in _STEERS), said[-4000:]
        assert done.returncode in _STATUSES, (done.returncode, said[-2000:])
        assert len(said) < _LONGEST_OUTPUT, len(said)
        assert self._outside() == before
        return done

    def _outside(self) -> dict[str, tuple[int, int]]:
        """What lies beside the project and its caches."""
        found = {}
        for place in (self.folder, self.folder / "outside"):
            for path in place.iterdir():
                if path.name not in ("project", "home"):
                    status = path.lstat()
                    found[str(path)] = status.st_size, status.st_mtime_ns
        return found


@dataclass(frozen=True)
class Case:
    """A hostile input."""

    name: str
    change: Callable[[World], object]
    """Makes the world hostile. It may return the arguments of the command that reads it."""


def cases(*tables: list[Case] | dict[str, Callable[[World], Any]], every: int = 4) -> pytest.MarkDecorator:
    """Parametrize a test by the cases of tables. One of `every` runs each time; `make fuzz` runs all."""
    found = [
        case
        for table in tables
        for case in (table if isinstance(table, list) else [Case(name, change) for name, change in table.items()])
    ]
    assert len({case.name for case in found}) == len(found), "two cases have the same name"
    params = [pytest.param(case, number % every == 0, id=case.name) for number, case in enumerate(found)]
    return pytest.mark.parametrize(("case", "quick"), params)


def skip_unless(quick: bool) -> None:
    """Skip a case of the nightly search in an ordinary run."""
    if not quick and hypothesis.settings().max_examples < _NIGHTLY:
        pytest.skip("`make fuzz` runs all cases")


def made_world(folder: Path) -> World:
    """Make the healthy world: both bundles are sound."""
    world = World(folder)
    write_project(world.project, document(mutants=MUTANTS))
    (world.project / "falsifiers" / "demo" / "sorting.py").write_text(FALSIFIER + _FALLBACK)
    for run, measurements in ((PASSED, healthy()), (FAILED, healthy(returned=2))):
        copy_of(sealed(folder / "made" / run, run=run, measurements=measurements), world.evidence)
    shutil.rmtree(folder / "made")
    (folder / "outside").mkdir()
    (folder / "outside" / "file").write_text("left alone\n")
    (folder / "home").mkdir()
    return world


_SERVER: list[Preloaded] = []


def _preloaded() -> Preloaded:
    """The process whose forks run the commands, with limited memory."""
    if not _SERVER:
        server = Preloaded()
        server.run(["--version"], Path("/"), dict(os.environ), 120)
        assert server._server is not None
        pid = server._server.pid
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
        resource.prlimit(pid, resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
        _SERVER.append(server)
    return _SERVER[0]
