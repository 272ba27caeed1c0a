"""Commands in processes of their own: they end in time, and what they started ends with them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from harness.machine.limited_process import Stopped, completed
from tests.machine.test_limited_process import gone

LEAVES = "sleep 600 & echo $!; echo wrong >&2; exit 3"


def test_a_command_is_told_by_its_status_and_output() -> None:
    """What it left behind has ended."""
    done = completed(["sh", "-c", LEAVES.replace("&", ">/dev/null 2>&1 &", 1)], 60)
    assert (done.returncode, done.stderr) == (3, "wrong\n")
    assert gone(int(done.stdout))


@pytest.mark.parametrize("ended", [True, False])
def test_a_command_has_a_time_limit(tmp_path: Path, ended: bool) -> None:
    """It can also be ended. What it started ends with it."""
    command = ["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/half; mv {tmp_path}/half {tmp_path}/pid; wait"]
    with pytest.raises(Stopped):
        completed(command, 600 if ended else 2.0, ended=lambda: ended and (tmp_path / "pid").exists())
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_command_that_does_not_start() -> None:
    with pytest.raises(Stopped):
        completed(["no-such-command"], 60)


def test_a_command_ends_when_the_caller_is_killed(tmp_path: Path) -> None:
    """So do the processes that it started in sessions of their own."""
    command = ["sh", "-c", f"setsid sleep 600 & echo $! $$ > {tmp_path}/half; mv {tmp_path}/half {tmp_path}/pids; wait"]
    caller = os.fork()
    if caller == 0:
        completed(command, 600)
        os._exit(0)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pids").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    assert all(map(gone, map(int, (tmp_path / "pids").read_text().split())))
