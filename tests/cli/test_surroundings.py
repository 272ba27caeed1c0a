"""Commands in failing surroundings: no current folder, full outputs, Ctrl-C at any moment, very long texts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import COMMAND, environment, harness
from tests.cli.toy_claim import CLAIM, record
from tests.execution.projects import write_project


def run(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": folder, **options}
    return subprocess.run([*COMMAND, *arguments], env=environment(folder), text=True, timeout=120, **given)


@pytest.mark.parametrize("command", ["list", "status", "init"])
def test_a_removed_current_folder(tmp_path: Path, command: str) -> None:
    """One line says so, and the command is refused."""
    (tmp_path / "gone").mkdir()
    script = "import os, sys; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
    arguments = [sys.executable, "-c", script, str(tmp_path / "gone"), *COMMAND, command]
    done = subprocess.run(arguments, env=environment(tmp_path), capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (ExitStatus.REFUSED, 1), done.stderr


def test_a_full_output_changes_no_verdict(tmp_path: Path) -> None:
    """The bundle is sealed, so the exit status is its verdict's. One line says that output is missing."""
    write_project(tmp_path)
    with open("/dev/full", "w") as full:
        done = run(tmp_path, "run", CLAIM, stdout=full)
    assert record(tmp_path)["verdict"] == "PASS"
    assert (done.returncode, len(done.stderr.splitlines())) == (ExitStatus.PASS, 1), done.stderr


def test_a_report_that_is_missing_is_no_pass(tmp_path: Path) -> None:
    """If the requested JSON cannot be written to standard output, the exit status is not 0."""
    write_project(tmp_path)
    with open("/dev/full", "w") as full:
        assert run(tmp_path, "run", CLAIM, "--json", "-", stdout=full).returncode == ExitStatus.NOT_MEASURED


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["list", "--wrong"], ExitStatus.REFUSED), (["show", "F-NONE-001"], ExitStatus.REFUSED)],
    ids=["usage", "project"],
)
def test_a_full_stderr_is_not_a_fail(tmp_path: Path, arguments: list[str], status: ExitStatus) -> None:
    """Python's status for an error that cannot be printed is 1, which would mean FAIL."""
    write_project(tmp_path)
    with open("/dev/full", "w") as full:
        assert run(tmp_path, *arguments, stderr=full).returncode == status


def test_ctrl_c_at_any_moment(tmp_path: Path) -> None:
    """Ctrl-C while Python imports the command line gives no traceback, and the status of an interruption."""
    write_project(tmp_path)
    for delay in (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2):
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "print(flush=True); from harness.__main__ import main; main()",
                "list",
            ],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        if b"Traceback" in said:
            assert b"in main" not in said, said.decode()  # before the first line of ours, nothing can catch it
        else:
            assert process.returncode in (ExitStatus.INTERRUPTED, ExitStatus.REFUSED, -signal.SIGINT, ExitStatus.PASS)


def test_ctrl_c_while_a_library_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library in Rust then panics. The harness reports an interruption, not a defect of its own."""

    class PanicException(BaseException):
        pass

    def panic(**options: Any) -> None:
        raise PanicException("called `Result::unwrap()` on an `Err` value: PyErr { type: <class 'KeyboardInterrupt'> }")

    monkeypatch.setattr(cli._group, "main", panic)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == ExitStatus.INTERRUPTED


@pytest.mark.parametrize("size", [100_000, 20_000_000])
def test_a_text_of_any_length_does_not_flood(tmp_path: Path, size: int) -> None:
    """A contract whose id or unknown key has megabytes gives a short message."""
    write_project(tmp_path)
    path = tmp_path / "contracts" / CLAIM / "contract.json"
    whole = json.loads(path.read_text())
    for changed in ({**whole, "id": "f" * size}, {**whole, "k" * size: 1}):
        path.write_text(json.dumps(changed))
        for arguments in (["list"], ["lint"], ["run", "--all"]):
            done = harness(tmp_path, *arguments)
            assert "Traceback" not in done.stderr
            assert len(done.stdout) + len(done.stderr) < 20_000, arguments
    if size < 1 << 17:
        assert len(run(tmp_path, "run", "F" * size).stderr) < 20_000


def test_a_subject_that_removes_the_current_folder(tmp_path: Path) -> None:
    """The run ends with its verdict."""
    write_project(tmp_path)
    here = tmp_path / "here"
    here.mkdir()
    module = tmp_path / "toy" / "sorting.py"
    removing = f'case "slowly":\n                os.rmdir({str(here)!r})'
    module.write_text(module.read_text().replace('case "slowly":', removing))
    done = run(tmp_path, "run", CLAIM, "-P", "how=slowly", "--no-mutants", cwd=here)
    assert done.returncode == ExitStatus.PASS, done.stderr
    assert not here.exists()
