"""Runs pytest with the plugin in a process of its own, and reads what it wrote."""

from __future__ import annotations

import io
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import final

from harness.authoring.faults import NotMeasured
from harness.authoring.setting import Setting
from harness.base import regular_file
from harness.base.strictjson import JsonObject
from harness.machine.limited_process import Stopped, completed
from harness.tools.suite.ledger import Ledger
from harness.tools.suite.plugin import SETTINGS

__all__ = ["Suite", "of_project", "read_ledger"]

_HARNESS = Path(__file__).parents[3]
_LARGEST_LEDGER = 64 << 20
_LONGEST_LINE = 4 << 20
"""Characters. Lines are parsed one after another, so this limits the memory for parsing, 20 bytes a character."""
_ALWAYS = ("-p", "harness.tools.suite.plugin", "-q", "--assert=rewrite", "--tb=line", "--maxfail=0")


@final
@dataclass(eq=False)
class Suite:
    """Tests below a folder, as pytest runs them there."""

    root: Path
    """The folder in which pytest runs."""
    arguments: Sequence[str]
    """Of pytest."""
    workspace: Path
    """A folder for what sessions write; it is made."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables."""
    fault: Mapping[str, str] | None = None
    """A defect that is planted in the suite: see `harness.tools.suite.weakened`."""
    _sessions: int = field(default=0, init=False)

    def run(
        self,
        *,
        forced: Mapping[str, str] | None = None,
        traced: Mapping[str, str] | None = None,
    ) -> Ledger:
        """Run the suite once.

        Args:
            forced: places of assertions by test id. Only these tests run, and in each the assertion there fails.
            traced: files whose executed lines the ledger has, with their names there.

        Raises:
            NotMeasured: there is no pytest.
        """
        command, ledger = self.session(self.arguments, {"forced": forced, "traced": traced})
        try:
            return read_ledger(ledger, completed(command, speaks=True).returncode)  # the time limit is the trial's
        except Stopped as error:
            raise NotMeasured(f"the session of pytest {error}") from error
        except (OSError, ValueError) as error:
            raise NotMeasured(f"what the tests wrote into {ledger} cannot be read: {error}") from error

    def only(self, tests: Iterable[str]) -> list[str]:
        """Return a command that runs tests by their ids, from any folder, and exits with 0 if all of them pass."""
        return self.session([*self.arguments, "-x"], {"forced": dict.fromkeys(tests)})[0]

    def passes(self, tests: Iterable[str]) -> bool:
        """Whether all of these tests pass."""
        try:
            return completed(self.only(tests), speaks=True).returncode == 0
        except Stopped as error:
            raise NotMeasured(f"the session of pytest {error}") from error

    def weakened(self, fault: Mapping[str, str]) -> Suite:
        """Return the suite with a defect planted in it. If that is in one file, only its tests run."""
        file = fault["function"].partition("::")[0]
        arguments = [file] if (self.root / file).is_file() else self.arguments
        return Suite(self.root, arguments, self.workspace, self.environment, fault)

    def copied(self, copy: Path, imported: Iterable[Path], workspace: Path) -> Suite:
        """Return the suite of a copy of its folder.

        Args:
            imported: folders below this one from which the tests import first, whatever is installed.
        """

        def moved(text: str) -> str:
            path = Path(text)
            return str(copy / path.relative_to(self.root)) if path.is_relative_to(self.root) else text

        inherited = self.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        search = [*map(str, imported), *filter(None, inherited.split(os.pathsep))]
        environment = {**self.environment, "PYTHONPATH": os.pathsep.join(map(moved, search))}
        return Suite(copy, [*map(moved, self.arguments)], workspace, environment, self.fault)

    def session(self, arguments: Sequence[str], settings: JsonObject) -> tuple[list[str], Path]:
        """Return a command that runs pytest in the suite's folder, and the ledger that it writes."""
        if find_spec("pytest") is None:
            raise NotMeasured("pytest is not installed here; install it beside the harness")
        self._sessions += 1
        place = self.workspace / f"session-{self._sessions}"
        place.mkdir(parents=True)
        ledger = place / "ledger.jsonl"
        document = {**settings, "fault": self.fault, "ledger": str(ledger)}
        (place / "settings.json").write_text(json.dumps(document), encoding="utf-8")
        ledger.touch()
        variables = _environment({**self.environment, SETTINGS: str(place / "settings.json")})
        loads = "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ | variables
        alone = ["-n0"] if loads and find_spec("xdist") else []
        there = ["sh", "-c", 'cd "$0" && exec env -u PYTEST_ADDOPTS "$@"', str(self.root)]
        assigned = [f"{name}={value}" for name, value in variables.items()]
        cache = ["-o", f"cache_dir={place / 'cache'}"]
        return [*there, *assigned, sys.executable, "-m", "pytest", *alone, *_ALWAYS, *cache, *arguments], ledger

    def files(self, ledger: Ledger) -> list[str]:
        """Return the files of the project that the suite imported, by their paths from its root."""
        return [file for file in ledger.files if (self.root / file).is_file()]


def read_ledger(file: Path, status: int) -> Ledger:
    """Return what a session wrote.

    Raises:
        OSError: it is not a regular file, or has more than `_LARGEST_LEDGER` bytes.
        ValueError: a line has another form than the plugin writes, or more than `_LONGEST_LINE` characters.
    """
    text = regular_file.read(file, _LARGEST_LEDGER).decode("utf-8")
    try:
        return Ledger.read(_whole_lines(text), status)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"a line has another form than the plugin of pytest writes: {error!r}") from error


def _whole_lines(text: str) -> Iterator[str]:
    for line in io.StringIO(text, newline="\n"):
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"a line has {len(line)} characters; {_LONGEST_LINE} are read")
        if line.endswith("\n"):  # not cut short
            yield line[:-1]


def of_project(setting: Setting) -> Suite:
    """Return the tests at the setting's `paths`, with its `options` of pytest, in the root of the project."""
    given = setting.parameters
    return Suite(Path.cwd(), [*given["options"], *given["paths"]], setting.workspace)


def _environment(further: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a suite gets beside those of this process. Compiled modules are not kept."""
    variables = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", **further}
    if str(_HARNESS) != sysconfig.get_path("purelib"):
        inherited = variables.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [inherited, str(_HARNESS)]))
    return variables
