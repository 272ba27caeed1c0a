"""If its user, scheduler, reader or terminal ends `harness run`, measurements are kept and no process remains."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from harness.execution.lease import CPU, lease
from tests.cli.harness_command import COMMAND, complaint, environment, harness, start
from tests.cli.toy_claim import CLAIM, bundles, record
from tests.execution.projects import write_project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with defective subjects."""
    write_project(tmp_path)
    return tmp_path


def processes_in(folder: Path) -> set[int]:
    """The processes in a folder: the harness, its fork server, trials and their children."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder):
                found.add(process.pid)
    return found


def _wait_for_trial(process: subprocess.Popen[str]) -> None:
    """Wait until the subject has made its first step, which the pipe reports."""
    assert process.stdout is not None
    for line in process.stdout:
        if "step 1" in line:
            time.sleep(0.2)
            return
    raise AssertionError("the run ended before its trial made a step")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_measured(folder: Path, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end every process at once. The bundle has the measurements; exit status 130."""
    process = start(folder, "run", CLAIM, "-v", "-j", "1", "-P", "how=hangs")
    _wait_for_trial(process)
    os.killpg(process.pid, number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == ExitStatus.INTERRUPTED, output
    assert "  not run: identity (the run was interrupted)\n" in output
    assert record(folder)["reason"]["cause"]["code"] == "interrupted"
    (bundle,) = bundles(folder)
    observation = json.loads((bundle / "observation.json").read_text())
    assert observation["ending"]["kind"] == "interrupted"
    assert observation["measurements"] == {"inversions": 0}
    assert processes_in(folder) == set()
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_asked_twice_what_was_measured_is_still_kept(folder: Path, number: signal.Signals) -> None:
    """A second Ctrl-C, or a terminal that disappears, costs no measurement."""
    process = start(folder, "run", CLAIM, "-v", "-P", "how=hangs")
    _wait_for_trial(process)
    os.killpg(process.pid, number)
    time.sleep(0.05)
    os.killpg(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode == ExitStatus.INTERRUPTED
    (bundle,) = bundles(folder)
    assert json.loads((bundle / "observation.json").read_text())["measurements"] == {"inversions": 0}
    assert processes_in(folder) == set()


def test_a_scheduler_that_ends_every_process_of_a_job(folder: Path) -> None:
    """SIGTERM reaches the trial too. The end of the trial is not a defect of the subject."""
    process = start(folder, "run", CLAIM, "-v", "-P", "how=hangs")
    _wait_for_trial(process)
    for pid in sorted(processes_in(folder), reverse=True):  # the trial first
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == ExitStatus.INTERRUPTED, output
    assert record(folder)["verdict"] == "NOT_MEASURED", output
    (bundle,) = bundles(folder)
    assert json.loads((bundle / "observation.json").read_text())["measurements"] == {"inversions": 0}
    assert processes_in(folder) == set()


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_ctrl_c_while_the_device_is_waited_for(folder: Path, delay: float) -> None:
    """The run ends, and its last line names the holder: no traceback, no trial, no bundle."""
    with lease(CPU, mode="exclusive", holder="F-OTHER-001", wait_seconds=0, directory=folder / "leases"):
        process = start(folder, "run", CLAIM)
        assert process.stdout is not None
        assert any("waiting for F-OTHER-001" in line for line in process.stdout)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == ExitStatus.INTERRUPTED
    lines = output.splitlines()
    assert lines[0] == "1 claim declared, 0 evaluated: 0 PASS, 0 FAIL, 0 NOT_MEASURED, 0 VOID"
    assert lines[1].startswith("interrupted while waiting for F-OTHER-001 (pid ")
    assert lines[1].endswith("): nothing was measured")
    assert lines[2:] == []
    assert bundles(folder) == []
    assert processes_in(folder) == set()


def test_ctrl_c_while_a_module_is_imported(folder: Path) -> None:
    """The run ends at once, says that nothing was measured, and leaves nothing running."""
    begun = folder / "begun"
    (folder / "toy" / "__init__.py").write_text(f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(1000)\n")
    process = start(folder, "run", CLAIM)
    while not begun.exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == ExitStatus.INTERRUPTED
    assert "interrupted: nothing was measured" in output
    assert bundles(folder) == []
    assert processes_in(folder) == set()


def test_a_killed_harness_leaves_nothing_behind(folder: Path) -> None:
    """After kill -9 no process runs for longer than five seconds, no bundle looks complete, and the next run works."""
    process = start(folder, "run", CLAIM, "-v", "-P", "how=hangs")
    _wait_for_trial(process)
    assert len(processes_in(folder)) > 3
    process.kill()
    process.wait()
    deadline = time.monotonic() + 5
    while processes_in(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_in(folder) == set()
    assert bundles(folder) == []
    assert harness(folder, "run", CLAIM).returncode == ExitStatus.PASS


def test_a_reader_who_leaves_costs_no_evidence(folder: Path) -> None:
    """With `harness run … | head -0` the claim is sealed, and the exit status is the verdict's."""
    process = start(folder, "run", CLAIM, "-v")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=60) == ExitStatus.PASS
    assert record(folder)["verdict"] == "PASS"


def test_a_terminal_that_goes_away(folder: Path) -> None:
    """Writing fails with EIO; the claim is sealed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "run", CLAIM, "-v", "-P", "how=slowly"],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.read(ours, 1)
    os.close(ours)
    assert process.wait(timeout=60) == ExitStatus.PASS
    assert record(folder)["verdict"] == "PASS"
    assert processes_in(folder) == set()


def test_a_user_without_a_home(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Some containers have users without names. Each command that needs a home says which variable to set."""
    write_project(tmp_path)
    known = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME", "HARNESS_CACHE_DIR")
    }
    program = "import pwd; pwd.getpwuid = lambda number: {}[number]; from harness.cli import main; main()"
    for arguments in (["run", CLAIM], ["status"]):
        line = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(line, cwd=tmp_path, env=known, capture_output=True, text=True, timeout=120)
        assert done.returncode == ExitStatus.REFUSED
        assert complaint(done, tmp_path) == snapshot


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_without_standard_streams(folder: Path, closed: str) -> None:
    """Some schedulers start a run without standard streams.

    The bundle is sound, and the exit status is the verdict's.
    """
    others = [["status"], ["verify", "evidence"]] if closed == "<&- >&- 2>&-" else []
    for arguments in (["run", CLAIM], *others):
        line = ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *arguments]
        assert subprocess.run(line, cwd=folder, env=environment(folder), timeout=120).returncode == ExitStatus.PASS
    assert record(folder)["verdict"] == "PASS"
