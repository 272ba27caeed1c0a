"""Runs pytest with the plugin in a process of its own, and reads what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import final

from harness.authoring.faults import NotMeasured
from harness.authoring.setting import Setting
from harness.base.strictjson import JsonObject
from harness.suite.ledger import Ledger
from harness.suite.plugin import SETTINGS

__all__ = ["Suite", "of_project"]

_HARNESS = Path(__file__).parents[2]
_ALWAYS = ("-p", "harness.suite.plugin", "-q", "--assert=rewrite", "--tb=line", "--maxfail=0")


@final
class Suite:
    """Tests below a folder, as pytest runs them there."""

    def __init__(
        self, root: Path, arguments: Sequence[str], workspace: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Args:
        root: the folder in which pytest runs.
        arguments: of pytest.
        workspace: a folder for what sessions write; it is made.
        environment: further variables.
        """
        self.root = root
        self._arguments, self._workspace, self._environment = arguments, workspace, environment or {}
        self._sessions = 0

    def run(
        self,
        *,
        paths: Sequence[str] | None = None,
        fault: Mapping[str, str] | None = None,
        forced: Mapping[str, str] | None = None,
    ) -> Ledger:
        """Run the suite once.

        Args:
            paths: other arguments than those of the setting.
            fault: a defect that is planted in the suite: see `harness.suite.weakened`.
            forced: places of assertions by test id. Only these tests run, and in each the assertion there fails.

        Raises:
            NotMeasured: there is no pytest.
        """
        if find_spec("pytest") is None:
            raise NotMeasured("pytest is not installed here; install it beside the harness")
        self._sessions += 1
        place = self._workspace / f"session-{self._sessions}"
        place.mkdir(parents=True)
        settings: JsonObject = {
            "ledger": str(place / "ledger.jsonl"), "fault": fault, "forced": forced,
        }  # fmt: skip
        (place / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        (place / "ledger.jsonl").touch()
        arguments = [*_ALWAYS, "-o", f"cache_dir={place / 'cache'}", *(self._arguments if paths is None else paths)]
        self._execute(arguments, {**self._environment, SETTINGS: str(place / "settings.json")})
        with (place / "ledger.jsonl").open(encoding="utf-8") as lines:
            return Ledger.read(_whole(lines))

    def files(self, ledger: Ledger) -> list[str]:
        """Return the files of the project that the suite imported, by their paths from its root."""
        return [file for file in ledger.files if (self.root / file).is_file()]

    def _execute(self, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        """Run pytest in a process of its own."""
        variables = {**_environment(), **variables}
        loads = "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in variables
        alone = ["-n0"] if loads and find_spec("xdist") else []
        subprocess.run(
            [sys.executable, "-m", "pytest", *alone, *arguments],
            cwd=self.root,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=2,  # standard output can belong to --json
            check=False,
        )


def of_project(setting: Setting) -> Suite:
    """Return the tests at the setting's `paths`, with its `options` of pytest, in the root of the project."""
    given = setting.parameters
    return Suite(Path.cwd(), [*given["options"], *given["paths"]], setting.workspace)


def _environment() -> dict[str, str]:
    """Return the environment of a suite: this one, without compiled modules that are kept."""
    found = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    found.pop("PYTEST_ADDOPTS", None)
    if str(_HARNESS) != sysconfig.get_path("purelib"):
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [found.get("PYTHONPATH"), str(_HARNESS)]))
    return found


def _whole(lines: Iterable[str]) -> Iterable[str]:
    """Yield the lines that were written to their end."""
    return (line for line in lines if line.endswith("\n"))
