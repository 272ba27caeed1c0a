"""Subjects and falsifiers with defects that could turn a broken trial into a PASS, or blame the wrong side."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from harness.base import strictjson
from harness.base.device import Device
from harness.base.vocabulary import Outcome, Phase
from harness.contract.project import Project
from harness.execution.executor import TrialRequest, TrialResult
from harness.execution.fork_server import ForkServer, ForkServerError
from harness.execution.local_executor import LocalExecutor
from harness.execution.logs import MOST
from harness.judging.judge import judge
from harness.judging.observation import EndingKind
from tests.contracts import contract_of
from tests.execution.projects import run, run_to_limit, write_project

ENDINGS = [
    ("is cancelled", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("raises the unspeakable", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("raises a novel", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("swallows", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("swallows a callback's fault", EndingKind.FALSIFIER_FAULT, Phase.FALSIFIER, Outcome.NOT_MEASURED),
    ("exits in a callback", EndingKind.DIED, Phase.FALSIFIER, Outcome.NOT_MEASURED),
    ("faults inside faults", EndingKind.DIED, Phase.SUBJECT, Outcome.FAIL),
    ("closes what it does not own", EndingKind.DIED, Phase.SUBJECT, Outcome.FAIL),
    ("finds the GPU busy", EndingKind.NOT_MEASURED, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("undeclared in a callback", EndingKind.FALSIFIER_FAULT, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("too much", EndingKind.FALSIFIER_FAULT, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("text as a step", EndingKind.FALSIFIER_FAULT, Phase.FALSIFIER, Outcome.NOT_MEASURED),
    ("ends its parent", EndingKind.LOST, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("writes where it should not", EndingKind.GARBLED, Phase.FALSIFIER, Outcome.NOT_MEASURED),
    ("forges its result", EndingKind.GARBLED, Phase.FALSIFIER, Outcome.NOT_MEASURED),
    ("names another process", EndingKind.GARBLED, Phase.FALSIFIER, Outcome.NOT_MEASURED),
    ("says that it was killed", EndingKind.GARBLED, Phase.FALSIFIER, Outcome.NOT_MEASURED),
    ("counts for itself", EndingKind.COMPLETED, Phase.FALSIFIER, Outcome.FAIL),
    ("closes its output", EndingKind.COMPLETED, Phase.FALSIFIER, Outcome.PASS),
    ("returns from a fork", EndingKind.COMPLETED, Phase.FALSIFIER, Outcome.PASS),
    ("speaks after its end", EndingKind.COMPLETED, Phase.FALSIFIER, Outcome.PASS),
    ("prints no UTF-8", EndingKind.COMPLETED, Phase.FALSIFIER, Outcome.PASS),
]


@pytest.mark.parametrize(("how", "kind", "phase", "outcome"), ENDINGS, ids=[row[0] for row in ENDINGS])
def test_defects_are_blamed_on_their_owner(
    executor: LocalExecutor, how: str, kind: EndingKind, phase: Phase, outcome: Outcome
) -> None:
    """A defect of the subject fails. A defect of the falsifier or the machine is NOT_MEASURED."""
    observation = run(executor, how).observation
    assert (observation.ending.kind, observation.ending.phase) == (kind, phase), observation.ending
    assert judge(executor._contract, observation).outcome is outcome


def test_an_endless_text_of_an_exception_is_cut_after_masking(executor: LocalExecutor) -> None:
    """A message of megabytes becomes one line. Secrets are masked before it is cut."""
    ending = run(executor, "raises a novel").observation.ending
    assert len(ending.reason) <= 2_000
    assert len(ending.traceback or "") <= 20_000
    assert "aaaa" not in ending.reason + (ending.traceback or "")


def test_a_nested_measurement_does_not_end_the_harness(executor: LocalExecutor) -> None:
    """A value that is too deep for JSON is judged or refused. The harness raises nothing."""
    observation = run(executor, "deep").observation
    assert judge(executor._contract, observation).outcome is not Outcome.PASS or observation.measurements == {
        "inversions": 0
    }


def test_threads_may_report_at_once(executor: LocalExecutor) -> None:
    """Messages that are larger than a pipe's buffer do not mix."""
    result = run(executor, "threads")
    assert result.observation.ending.kind is EndingKind.COMPLETED
    assert result.steps.count == 101
    assert result.observation.measurements == {"inversions": 0}


def test_a_signal_handler_may_report(executor: LocalExecutor) -> None:
    """A signal handler that reports during a report neither blocks nor garbles a message."""
    result = run(executor, "alarms")
    assert result.observation.ending.kind is EndingKind.COMPLETED, result.observation.ending
    assert len([row for row in result.steps.rows if row["loss"] == 0.5]) == 2000


def test_a_trial_that_stops_itself_is_ended(executor: LocalExecutor) -> None:
    """A trial that stops itself by SIGSTOP counts as a hang."""
    observation = run_to_limit(executor, "stops itself").observation
    assert (observation.ending.kind, observation.ending.phase) == (EndingKind.TIMED_OUT, Phase.SUBJECT)


def test_floods_on_both_streams(executor: LocalExecutor) -> None:
    """Two threads write to two streams at once. Every byte is counted."""
    result = run(executor, "floods twice", seconds=60)
    assert result.observation.ending.kind is EndingKind.COMPLETED
    assert (result.stdout.size, result.stderr.size) == (50_000_000, 50_000_000)


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return Path(process.cwd()) == folder
    except psutil.Error:
        return False


def test_a_chain_of_forks_is_caught(executor: LocalExecutor) -> None:
    """A process that forks and exits repeatedly ends with the trial."""
    result = run(executor, "hops")
    assert result.observation.ending.kind is EndingKind.COMPLETED
    root = executor._project.root
    left = [process for process in psutil.process_iter() if process.ppid() == 1 and _works_in(process, root)]
    assert left == []


def test_steps_cost_the_subject_little(executor: LocalExecutor) -> None:
    """A report takes microseconds of processor time, so ten thousand steps a second are possible."""
    result = run(executor, "fast", seconds=60)
    assert result.steps.count == 50_001
    assert len(result.steps.rows) <= MOST + 1
    assert float(result.stdout.text) < 100e-6


def _run_until_hanging(executor: LocalExecutor, then: Callable[[], None]) -> TrialResult:
    """The result of a subject that hangs, `then` being called once it does."""
    hanging, ended = executor._project.root / "hanging", threading.Event()
    hanging.unlink(missing_ok=True)

    def wait() -> None:
        while not hanging.exists():
            if ended.wait(0.01):
                return
        then()

    waiting = threading.Thread(target=wait)
    waiting.start()
    try:
        return run(executor, "hangs", seconds=300)
    finally:
        ended.set()
        waiting.join()


def test_what_was_said_before_an_interruption_counts(executor: LocalExecutor) -> None:
    """Measurements before an interruption are kept."""
    observation = _run_until_hanging(executor, executor.interrupt).observation
    assert observation.ending.kind is EndingKind.INTERRUPTED
    assert observation.measurements == {"inversions": 0}


def test_a_folder_that_cannot_be_made_is_the_machines(project: Project, tmp_path: Path) -> None:
    """Without a cache folder the trial is lost with the reason, and the harness continues."""
    (tmp_path / "file").touch()
    with LocalExecutor(project, project.contract("F-TOY-SORT-001"), tmp_path / "file" / "cache") as executor:
        observation = run(executor, "well").observation
    assert observation.ending.kind is EndingKind.LOST
    assert "Not a directory" in observation.ending.reason


@contextmanager
def server_of(root: Path) -> Iterator[ForkServer]:
    """A fork server for the modules in a folder."""
    server = ForkServer.started(root, (root,))
    try:
        yield server
    finally:
        server.close()


def test_a_module_that_ends_the_fork_server(tmp_path: Path) -> None:
    """os._exit() during an import ends the server, and the error says how."""
    (tmp_path / "deadly.py").write_text("import os, sys\nprint('last words', flush=True)\nos._exit(7)\n")
    with server_of(tmp_path) as server, pytest.raises(ForkServerError, match=r"\b7: last words; .* deadly$"):
        server.import_modules(["deadly"])


def _limited_by(imported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an import reach its limit when this file exists, on a machine of any speed."""

    def wait(reading: list[Any], writing: list[Any], failing: list[Any], seconds: float) -> tuple[list[Any], ...]:
        while not imported.exists():
            time.sleep(0.01)
        return [], [], []

    monkeypatch.setattr("harness.execution.fork_server.select", SimpleNamespace(select=wait))


ENDLESS = """
import pathlib, time
pathlib.Path("imported").touch()
time.sleep(1000)
"""


@pytest.mark.parametrize("line", [ENDLESS, "import os; os._exit(7)"], ids=["never ends", "exits"])
def test_what_ended_the_imports_is_the_reason_of_every_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """After an endless import, the reason names the module."""
    if line == ENDLESS:
        _limited_by(tmp_path / "imported", monkeypatch)
    project = write_project(tmp_path)
    module = tmp_path / "toy" / "sorting.py"
    module.write_text(f"{line}\n{module.read_text()}")
    with LocalExecutor(project, project.contract("F-TOY-SORT-001"), tmp_path / "cache") as executor:
        assert executor.imports().failures
        for _ in range(2):
            ending = run(executor, "well").observation.ending
            assert ending.kind is EndingKind.LOST
            assert re.search(r" toy\.\w+$", ending.reason)


# The server is told to end, but hears it only when a trial has begun.
DEAF = """
import pathlib, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
pathlib.Path("imported").touch()
while not pathlib.Path("begun").exists():
    time.sleep(0.01)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
time.sleep(1000)
"""


def test_a_server_that_ends_while_a_trial_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server leaves its folder to the harness, which has just made the trial's folder there."""
    _limited_by(tmp_path / "imported", monkeypatch)
    project = write_project(tmp_path)
    module = tmp_path / "toy" / "sorting.py"
    module.write_text(f"{DEAF}\n{module.read_text()}")
    with LocalExecutor(project, project.contract("F-TOY-SORT-001"), tmp_path / "cache") as executor:

        def dump(document: object, path: Path) -> None:
            (tmp_path / "begun").touch()
            executor._server._process.wait(60)
            strictjson.dump(document, path)

        monkeypatch.setattr("harness.execution.local_executor.strictjson", SimpleNamespace(dump=dump))
        assert executor.imports().failures
        result = run(executor, "well")
        assert re.search(r" toy\.\w+$", result.observation.ending.reason), result.observation.ending
        assert result.artifacts is not None
        assert result.artifacts.path.is_dir()
    assert not executor._server.folder.exists()


def test_an_endless_import_ends_with_the_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of a harness that is killed leaves neither a process nor a folder, also while it imports."""
    (tmp_path / "waiting.py").write_text(ENDLESS)
    _limited_by(tmp_path / "imported", monkeypatch)
    monkeypatch.setattr(subprocess.Popen, "terminate", lambda process: None)  # a dead harness sends no signal
    server = ForkServer.started(tmp_path, (tmp_path,))
    try:
        with pytest.raises(ForkServerError):
            server.import_modules(["waiting"])
        server._control.close()
        server._process.wait(60)
        assert not server.folder.exists()
    finally:
        server._process.kill()


def test_an_import_that_fails_names_the_entry_point(tmp_path: Path) -> None:
    """The reason has the missing module and the module that imports it."""
    project = write_project(tmp_path)
    (tmp_path / "toy" / "broken.py").write_text("falsify = None\nimport nonexistent\n")
    with LocalExecutor(project, project.contract("F-TOY-BROKEN-001"), tmp_path / "cache") as executor:
        ending = run(executor, "well").observation.ending
    assert (ending.kind, ending.phase) == (EndingKind.FALSIFIER_FAULT, Phase.START)
    assert ending.reason.startswith("toy/broken.py:2: ModuleNotFoundError: toy.broken: ")
    assert "'nonexistent'" in ending.reason


@pytest.mark.parametrize("line", ["import nonexistent", "raise SystemExit(3)", "missing()"])
def test_a_subject_that_cannot_be_loaded_is_nobodys_fault(tmp_path: Path, line: str) -> None:
    """Such a subject refutes nothing, and the falsifier is not blamed. The place of the failure is kept."""
    project = write_project(tmp_path)
    (tmp_path / "toy" / "other.py").write_text(f"{line}\nclass Subject:\n    pass\n")
    contract = project.contract("F-TOY-SORT-001")
    contract = contract_of({**contract.document, "subject": "toy.other:Subject"})
    with LocalExecutor(project, contract, tmp_path / "cache") as executor:
        result = run(executor, "well")
    ending = result.observation.ending
    assert (ending.kind, ending.phase) == (EndingKind.NOT_MEASURED, Phase.START)
    assert "toy/other.py" in (ending.traceback or "")


def test_a_module_that_forks_on_import(tmp_path: Path) -> None:
    """The child does not act as a second server: it ends and removes no folder."""
    (tmp_path / "forking.py").write_text("import os\nos.fork()\n")
    with server_of(tmp_path) as server:
        assert server.import_modules(["forking"]).failures == {}
        assert server.import_modules(["json"]).failures == {}
        assert server.folder.is_dir()


def test_a_project_of_thousands_of_modules(tmp_path: Path) -> None:
    """The list of sources may be larger than a message of the control socket."""
    package = tmp_path / "many"
    package.mkdir()
    for number in range(2500):
        (package / f"a_module_with_a_rather_long_name_{number}.py").touch()
    (package / "__init__.py").write_text(
        "import importlib\n"
        "for number in range(2500):\n"
        "    importlib.import_module(f'many.a_module_with_a_rather_long_name_{number}')\n"
    )
    with server_of(tmp_path) as server:
        assert len(server.import_modules(["many"]).sources) == 2501


def test_an_import_that_used_cuda_is_the_falsifiers_defect(tmp_path: Path) -> None:
    """A CUDA context cannot be forked. The check finds it before the subject runs."""
    (tmp_path / "torch.py").write_text(
        "class cuda:\n"
        "    _is_in_bad_fork = staticmethod(lambda: True)\n"
        "    is_initialized = staticmethod(lambda: False)\n"
    )
    project = write_project(tmp_path)
    (tmp_path / "toy" / "__init__.py").write_text("import torch\n")
    contract = project.contract("F-TOY-SORT-001")
    with LocalExecutor(project, contract, tmp_path / "cache") as executor:
        request = TrialRequest(
            contract, contract.subject, "reduced", {"items": 3, "how": "well"}, Device("cuda", "x"), 0, 20, 1
        )
        ending = executor.run(request, lambda step, values, memory: None).observation.ending
    assert (ending.kind, ending.phase) == (EndingKind.FALSIFIER_FAULT, Phase.START)
    assert "cannot be forked" in ending.reason


def test_a_stopped_supervisor_does_not_keep_the_harness(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the supervisor does not answer, the harness gives up the trial. The end of the executor ends all processes."""
    monkeypatch.setattr("harness.execution.watch.TEARDOWN_SECONDS", 1.0)

    def stop() -> None:
        for supervisor in psutil.Process(executor._server._process.pid).children():
            os.kill(supervisor.pid, signal.SIGSTOP)
        executor.interrupt()

    observation = _run_until_hanging(executor, stop).observation
    assert observation.ending.kind is EndingKind.INTERRUPTED
