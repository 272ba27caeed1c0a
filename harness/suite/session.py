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

__all__ = ["Suite", "environment"]

_HARNESS = Path(__file__).parents[2]


@final
class Suite:
    """The tests at some paths of a project, as pytest runs them in its root; built as `Suite(setting)`.

    Parameters of the setting: `paths` and `options` are arguments of pytest.
    """

    def __init__(self, setting: Setting) -> None:
        self.root = Path.cwd()
        self._workspace = setting.workspace
        self._arguments = [*setting.parameters["options"], *setting.parameters["paths"]]
        self._sessions = 0

    def run(
        self,
        *,
        paths: Sequence[str] | None = None,
        fault: Mapping[str, str] | None = None,
        forced: Mapping[str, str] | None = None,
        modules: Iterable[str] = (),
        quiet: bool = False,
    ) -> Ledger:
        """Run the suite once.

        Args:
            paths: other arguments than those of the setting.
            fault: a defect that is planted in the suite: see `harness.suite.weakened`.
            forced: places of assertions by test id. Only these tests run, and in each the assertion there fails.
            modules: files whose executed lines are recorded.
            quiet: whether pytest's output is dropped.

        Raises:
            NotMeasured: there is no pytest.
        """
        if find_spec("pytest") is None:
            raise NotMeasured("pytest is not installed here; install it beside the harness")
        self._sessions += 1
        place = self._workspace / f"session-{self._sessions}"
        place.mkdir(parents=True)
        settings: JsonObject = {
            "ledger": str(place / "ledger.jsonl"), "modules": [*modules], "fault": fault, "forced": forced,
        }  # fmt: skip
        (place / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        (place / "ledger.jsonl").touch()
        subprocess.run(
            command([*self._arguments] if paths is None else paths, place),
            cwd=self.root,
            env={**environment(), SETTINGS: str(place / "settings.json")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else None,
            stderr=subprocess.DEVNULL if quiet else None,
            check=False,
        )
        with (place / "ledger.jsonl").open(encoding="utf-8") as lines:
            return Ledger.read(_whole(lines))

    def files(self, ledger: Ledger) -> list[str]:
        """Return the files of the project that the suite imported, by their paths from its root."""
        return [file for file in ledger.files if (self.root / file).is_file()]


def command(arguments: Sequence[str], cache: Path) -> list[str]:
    """Return the command that runs pytest with the plugin: in one process, to the end, with an empty cache."""
    loads = "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ
    alone = ["-n0"] if loads and find_spec("xdist") else []
    return [
        *(sys.executable, "-m", "pytest", "-p", "harness.suite.plugin", *alone, "-q", "--assert=rewrite", "--tb=line"),
        *("-o", f"cache_dir={cache / 'cache'}", "--maxfail=0", *arguments),
    ]


def environment() -> dict[str, str]:
    """Return the environment of a suite: this one, without compiled modules that are kept."""
    found = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    found.pop("PYTEST_ADDOPTS", None)
    if str(_HARNESS) != sysconfig.get_path("purelib"):
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [found.get("PYTHONPATH"), str(_HARNESS)]))
    return found


def _whole(lines: Iterable[str]) -> Iterable[str]:
    """Yield the lines that were written to their end."""
    return (line for line in lines if line.endswith("\n"))
