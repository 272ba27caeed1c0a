"""F-PIPE-MATRIX-001: the tests of pipelines run for every combination of their parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from harness import Trial


class Suite(Protocol):
    """A test file with parameters; built as `Subject(setting)`."""

    def arguments(self) -> Sequence[str]:
        """Return pytest's arguments: the file, and any filters of its tests."""
        ...


Cell = tuple[tuple[str, str], ...]
"""Values of parameters by name, written as Python does."""


def falsify(trial: Trial[Suite]) -> None:
    """Run the tests, and once more collect the tests that the filter selects.

    A cell is identified by its values: equal values twice are one cell. A test that is skipped or expected to fail has
    not run.
    """
    with trial.subject_fault():
        arguments = [*trial.subject.arguments()]
        ran = _run(arguments, trial.workspace)
        chosen = _run([*arguments, "--collect-only", "-k", trial.parameters["filter"]], trial.workspace)
    stated = [_values(axis) for axis in trial.parameters["axes"]]
    cells = {tuple(sorted(cell)) for cell in itertools.product(*stated)}
    trial.measure(
        collected=len(ran.collected),
        executed=len(ran.executed),
        selected=len(chosen.collected),
        missing=sorted(_shown(cell) for cell in cells - set(ran.executed)),
        unstated=sorted(_shown(cell) for cell in set(ran.collected) - cells),
        failed=len(ran.failed),
    )
    trial.resolve(device="cpu")


class _Heard:
    """A pytest plugin that records which cells are collected and which run."""

    def __init__(self) -> None:
        self.collected: list[Cell] = []
        self.executed: list[Cell] = []
        self.failed: list[str] = []
        self._cells: dict[str, Cell] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            given: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
            self._cells[item.nodeid] = tuple(sorted((name, repr(value)) for name, value in given.items()))
        self.collected = [*self._cells.values()]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        if report.when == "call" and not report.skipped and not hasattr(report, "wasxfail"):
            self.executed.append(self._cells[report.nodeid])


def _run(arguments: Sequence[str], workspace: Path) -> _Heard:
    """Run pytest in this process, without the project's configuration and plugins."""
    (workspace / "pytest.ini").write_text("[pytest]\n")
    alone = [f"--rootdir={workspace}", "-c", f"{workspace / 'pytest.ini'}", "--disable-plugin-autoload", "-q"]
    alone += [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:unraisableexception",
        "--import-mode=importlib",
        f"--basetemp={workspace / 'pytest'}",
    ]
    heard = _Heard()
    pytest.main([*alone, *arguments], plugins=[heard])
    return heard


def _values(axis: str) -> list[tuple[str, str]]:
    name, _, values = axis.partition(":")
    return [(name, value.strip()) for value in values.split("|")]


def _shown(cell: Cell) -> str:
    return ", ".join(f"{name} {value}" for name, value in cell)
