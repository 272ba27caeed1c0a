"""The pytest plugin of `harness falsify-tests`: writes what every test of a session did, a line of JSON each.

    echo '{"ledger": "/tmp/ledger.jsonl"}' > settings.json
    HARNESS_SUITE=settings.json python -m pytest -p harness.tools.suite.plugin tests

It marks the assertions of every module that pytest rewrites, and asks pytest to rewrite the other modules of the test
folders, too. It counts those that hold while a test is called. Assertions in the set-up of fixtures do not count: a
fixture of a session runs for whichever test comes first. A line is written when a test ends, so a session that dies
leaves the lines until then, and none that says how it ended. It has no assertions: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import builtins
import inspect
import json
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import _pytest.assertion.rewrite as rewriting
import pytest

from harness.base import strictjson
from harness.tools.suite import assertions, weakened

__all__ = ["SETTINGS"]

SETTINGS = "HARNESS_SUITE"
"""The environment variable with the file of a session's settings, which are JSON.

`ledger`: the file to write. `forced`: places by test id; only these tests run, and such an assertion fails where it
held; null is no place. `fault`: a defect to plant in the suite, see `harness.tools.suite.weakened`. `traced`: files
whose executed lines are written, by their paths, with their names.
"""
_LONGEST = 80
"""Characters of the text of one parameter's value."""


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Begin before pytest imports the first conftest.py."""
    file = os.environ.pop(SETTINGS, None)  # a session within a test is not another suite
    if file is not None:
        session = _Session(strictjson.load(Path(file)), early_config.rootpath)
        session.instrument(args)
        early_config.pluginmanager.register(session, "harness.tools.suite")


class _Session:
    """One run of a suite."""

    def __init__(self, settings: dict[str, Any], root: Path) -> None:
        self._root = root
        self._file = os.open(settings["ledger"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._owner = os.getpid()
        self._forced: dict[str, str | None] | None = settings.get("forced")
        self._fault: dict[str, Any] | None = settings.get("fault")
        self._marked: set[str] = set()
        self._held: Counter[str] | None = None
        """How often each assertion of the present test held; None while no test is called."""
        self._force: str | None = None
        self._outcomes: dict[str, tuple[str, str]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._traced: dict[str, str] = settings.get("traced") or {}
        self._before: set[str] = set()
        """The traced lines that ran while no test was called."""
        self._lines = self._before
        self._trace()

    def instrument(self, arguments: Iterable[str]) -> None:
        """Mark assertions in the modules that pytest rewrites from now on, and let it rewrite helpers of tests."""
        setattr(builtins, assertions.HELD, self._hold)
        setattr(builtins, assertions.CALLED, self._call)
        original = rewriting.rewrite_asserts

        def rewrite(tree: Any, source: bytes, path: str | None = None, config: pytest.Config | None = None) -> None:
            name = self._name(path or "")
            if not name.startswith("/") and "site-packages" not in name:  # plugins assert too, such as Hypothesis
                if self._fault is not None:
                    weakened.plant(tree, name, self._fault)
                assertions.mark(tree, name)
                self._marked.add(path or "")
            original(tree, source, path, config)

        rewriting.rewrite_asserts = rewrite  # type: ignore[assignment]
        # Marked code must not be kept for sessions without this plugin, nor theirs be used here.
        rewriting.PYC_TAIL = f"-harness-{os.getpid()}{rewriting.PYC_TAIL}"
        names = {name for argument in arguments for name in _modules(argument)}
        pytest.register_assert_rewrite(*sorted(names - sys.modules.keys()))

    def _name(self, path: str) -> str:
        file = Path(path)
        return file.relative_to(self._root).as_posix() if file.is_relative_to(self._root) else path

    def _hold(self, place: str) -> None:
        held = self._held
        if held is not None:
            held[place] += 1
            if place == self._force:
                raise AssertionError(f"{place} was made to fail by harness falsify-tests")

    def _call(self, place: str, function: Any) -> None:
        """Count a call by name, unless the function asserts by itself, or is a mock."""
        while isinstance(function, partial):
            function = function.func
        is_mock = type(function).__module__ == "unittest.mock" or "mock" in getattr(function, "__dict__", {})
        inner = function if is_mock else getattr(function, "__func__", function)
        code = None if is_mock else getattr(inspect.unwrap(inner), "__code__", None)
        ours = isinstance(code, CodeType) and code.co_filename in self._marked
        if not ours and not is_mock:
            self._hold(place)

    def _trace(self) -> None:
        """Note the lines of traced files from now on, in new frames. A test or a plugin can have ended that."""
        if self._traced:
            threading.settrace(self._enter)
            sys.settrace(self._enter)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        name = self._traced.get(frame.f_code.co_filename)
        if name is None:
            return None

        def line(frame: FrameType, event: str, argument: object) -> Any:
            self._lines.add(f"{name}:{frame.f_lineno}")
            return line

        return line(frame, event, argument)

    def _write(self, **line: Any) -> None:
        if os.getpid() == self._owner:
            os.write(self._file, json.dumps(line).encode() + b"\n")

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Write a test that was found; conftest.py can still drop it."""
        self._write(collected=item.nodeid, **_cell_of(item))

    @pytest.hookimpl(trylast=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Leave one set of parameters if that is the defect to plant."""
        fault = self._fault
        if fault is not None and (fault["kind"], fault["function"]) == (weakened.COLLAPSED, metafunc.definition.nodeid):
            del metafunc._calls[1:]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the tests in which no assertion is made to fail."""
        if self._forced is not None:
            items[:] = [item for item in items if item.nodeid in self._forced]

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        """Write the tests that options or conftest.py leave out."""
        for item in items:
            self._write(deselected=item.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a file that is skipped, or cannot be imported."""
        if report.outcome != "passed":
            self._write(file=report.nodeid, outcome=report.outcome, reason=_reason(report))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Let tests that draw numbers draw equal ones in every session; fixtures can seed again."""
        random.seed(0)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Count while a test is called."""
        self._held, self._force = Counter(), (self._forced or {}).get(item.nodeid)
        self._lines = set()
        self._trace()
        try:
            return (yield)
        finally:
            if self._traced:
                self._write(called=item.nodeid, lines=sorted(self._lines))
            self._lines = self._before
            self._counts[item.nodeid] = dict(self._held)
            self._held = self._force = None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a test at its end, with what pytest says of it after all hooks of the suite."""
        outcome = _outcome(report)
        if outcome != "passed" or report.when == "call":
            before = self._outcomes.get(report.nodeid)
            if before is None or before[0] != "failed":
                self._outcomes[report.nodeid] = outcome, _reason(report)
        if report.when == "teardown":
            outcome, reason = self._outcomes.pop(report.nodeid, ("skipped", "it was never called"))
            self._write(
                test=report.nodeid,
                outcome=outcome,
                reason=reason,
                held=self._counts.pop(report.nodeid, {}),
            )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write that the session ended in order, and what it imported."""
        if self._fault is not None and self._fault["kind"] == weakened.HIDDEN:
            session.exitstatus = pytest.ExitCode.OK
        files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
        ours = {self._name(file) for file in files if file.startswith(f"{self._root}{os.sep}")}
        self._write(
            end=int(exitstatus),
            files=sorted(file for file in ours if "site-packages" not in file),
            lines=sorted(self._before),
        )


def _cell_of(item: pytest.Item) -> dict[str, Any]:
    """Return the function of a test, the values of its parameters, and whether a library draws its examples."""
    specification = getattr(item, "callspec", None)
    function = item.nodeid
    cell: dict[str, str] = {}
    if specification is not None:
        function = item.nodeid.removesuffix(f"[{specification.id}]")
        cell = {name: _text(value, specification.id) for name, value in sorted(specification.params.items())}
    drawn = bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))
    return {"function": function, "cell": cell, "drawn": drawn, "python": isinstance(item, pytest.Function)}


def _text(value: object, identifier: str) -> str:
    """Return a parameter's value in words that are equal in every session."""
    name = getattr(value, "__qualname__", getattr(value, "__name__", None))  # of a class, a function or a module
    text = value if isinstance(value, str) else name or repr(value)
    if not isinstance(text, str) or " at 0x" in text or len(text) > _LONGEST:
        return f"{type(value).__name__} of {identifier}"[: 2 * _LONGEST]
    return text if text.isprintable() else repr(text)  # a cell is one line of the ledger that a later run reads


def _outcome(report: pytest.TestReport) -> str:
    is_strict = report.failed and str(report.longrepr).startswith("[XPASS(strict)]")
    if hasattr(report, "wasxfail") or is_strict:
        return "xfailed"
    return str(report.outcome)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)[:400]
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")[:400]
    return str(report.longrepr or "")[-400:]


def _modules(argument: str) -> Iterable[str]:
    """Yield the names under which the modules at or below a path can be imported."""
    place = Path(argument.partition("::")[0])
    files = [place] if place.suffix == ".py" else place.rglob("*.py") if place.is_dir() else []
    for file in files:
        parts, folder = [] if file.stem == "__init__" else [file.stem], Path(os.path.realpath(file)).parent
        while (folder / "__init__.py").exists() and folder != folder.parent:
            parts.insert(0, folder.name)
            folder = folder.parent
        if parts:
            yield ".".join(parts)
