"""A toy suite, and the same with a fault in each of its functions: each fault shows in its own measurement."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness import Setting
from harness.execution.worker_trial import WorkerTrial
from harness.tools.suite import weakened
from harness.tools.suite.contract import SuiteSettings, choose_faults, contract_of
from harness.tools.suite.falsifier import EXECUTED, NOT_EXECUTED, deaf_tests, falsify
from harness.tools.suite.ledger import Ledger, stated
from harness.tools.suite.session import Suite, of_project
from tests.falsifiers.distill.trials import Heard
from tests.tools.suite.toy import FAULTS, write


@pytest.fixture(scope="module", autouse=True)
def _alone() -> Iterator[None]:
    """Load no plugin of this environment, which saves most of a session's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        yield


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of each suite."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("healthy", "faulty")}
    for name, folder in found.items():
        write(folder, faulty=name == "faulty")
    return found


def measured(folder: Path, workspace: Path, **changed: Any) -> dict[str, Any]:
    """The measurements of the falsifier for the suite in a folder."""
    given = contract_of(SuiteSettings("F-TESTS-TOY-001", ["tests"]), {})
    parameters = {**given["profiles"]["full"]["parameters"], **changed}
    heard, before = Heard(), Path.cwd()
    os.chdir(folder)
    try:
        setting = Setting(parameters, "cpu", 0, workspace, workspace)
        WorkerTrial(setting, workspace, frozenset(given["observation"]["properties"]), heard).run(falsify, of_project)
    finally:
        os.chdir(before)
    return heard.measurements


@pytest.fixture(scope="module")
def healthy(suites: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The measurements of the healthy suite, with an assertion of each test made to fail; and its ledger."""
    place = tmp_path_factory.mktemp("place")
    return measured(suites["healthy"], place), place / EXECUTED


@pytest.mark.parametrize("ends", ["", "import os\n    os._exit(0)\n"])
def test_what_a_session_leaves_ends_with_it(tmp_path: Path, ends: str) -> None:
    """A session that ends before it said how, with status 0 even, is broken."""
    (tmp_path / "test_leaving.py").write_text(
        "import subprocess\n\ndef test_it():\n"
        f"    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n    {ends}"
    )
    ledger = Suite(tmp_path, ["test_leaving.py"], tmp_path / "sessions").run()
    assert bool(ledger.broken) is bool(ends)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_healthy_suite(healthy: tuple[dict[str, Any], Path]) -> None:
    """The suite has its counts, and no finding."""
    found, file = healthy
    assert {name: value for name, value in found.items() if value != []} == {
        "executed_cells": 23, "assertions": 32, "checks": 34, "cells_without_assertion": 0, "skipped_cells": 0,
        "forced_failures": 23,
    }  # fmt: skip
    ran = stated(file.read_text().splitlines())
    cells = ran["tests/test_toy.py::test_collapsed"]
    assert sorted(cells) == sorted(f"contextuals={c}, head_dim={d}" for c in (0, 4) for d in (32, 64, 128))
    assert ran["tests/test_toy.py::test_returns_early"] == {"place=near": (3, 3), "place=far": (3, 3)}


def test_each_fault_is_seen(suites: dict[str, Path], healthy: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    """The fault shows in the measurement that names it."""
    found = measured(suites["faulty"], tmp_path, tests=healthy[1].read_text().splitlines())
    lists = {name: " ".join(value) for name, value in found.items() if isinstance(value, list)}
    seen = {fault: [name for name, text in lists.items() if f"::{fault}" in text] for fault in FAULTS}
    assert seen == {fault: [measurement] for fault, (_, _, measurement) in FAULTS.items()}
    assert found["failed"] == []
    assert (tmp_path / NOT_EXECUTED).read_text() == (
        "skipped: tests/test_toy.py::test_skipped: slow\nxfailed: tests/test_toy.py::test_expected_to_fail: flaky\n"
    )


def test_where_faults_are_planted(suites: dict[str, Path], healthy: tuple[dict[str, Any], Path]) -> None:
    """A fault goes into a test with the most assertions. If parameters are removed, the test has several cells."""
    found = choose_faults(healthy[1].read_text().splitlines(), suites["healthy"])
    assert found.keys() == weakened.FAULTS.keys() - {weakened.HIDDEN}
    assert set(found.values()) == {"tests/test_toy.py::test_returns_early"}


@pytest.mark.parametrize(("status", "deaf"), [(1, 0), (0, 1)])
def test_pytest_ends_with_a_status_that_hides_failures(
    status: int, deaf: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A hook can set the status, although every test is seen to fail."""
    name, place = "tests/test_toy.py::test_one", "tests/test_toy.py:3:4"
    collected = json.dumps({"collected": name, "function": name, "cell": {}, "drawn": False, "python": True})

    def session(outcome: str, status: int) -> Ledger:
        test = json.dumps({"test": name, "outcome": outcome, "reason": "", "held": {place: 1}})
        return Ledger.read([collected, test, json.dumps({"end": status, "files": []})], status)

    suite = Suite(tmp_path, [], tmp_path)
    monkeypatch.setattr(Suite, "run", lambda self, forced: session("failed", status))
    found = deaf_tests(suite, session("passed", 0), 1, 0)
    assert found["forced_failures"] == 1
    assert len(found["deaf"]) == deaf
