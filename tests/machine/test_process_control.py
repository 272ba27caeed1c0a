"""Orphans that a process adopts for a while: they end, and nothing else does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ORPHAN = """
import os, sys, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.write(writing, str(os.getpid()).encode())
        time.sleep(600)
    os._exit(0)
os.wait()
orphan = int(os.read(reading, 20))
"""
STARTED = """
import subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=-3, stderr=-3)
"""


def ran(body: str) -> list[int]:
    """Run code in a Python of its own, which prints process ids, and return them."""
    script = f"from harness.machine.process_control import _adopts, adopting\n{body}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def is_there(pid: int) -> bool:
    """Whether a process lives; it is killed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def indented(code: str) -> str:
    return code.replace("\n", "\n    ")


def test_an_orphan_ends_with_the_block() -> None:
    """Afterwards, this process adopts none any more."""
    (orphan, adopts) = ran(f"with adopting():{indented(ORPHAN)}\nprint(orphan, int(_adopts()))")
    assert (is_there(orphan), adopts) == (False, 0)


@pytest.mark.parametrize("place", ["before", "inside"])
def test_children_of_this_process_stay(place: str) -> None:
    """They were there before, or this process started them meanwhile, in sessions of their own."""
    before, inside = (STARTED, "pass") if place == "before" else ("", indented(STARTED))
    block = f"with adopting():\n    {inside}{indented(ORPHAN)}"
    child, orphan = ran(f"{before}\n{block}\nprint(child.pid, orphan)")
    assert (is_there(child), is_there(orphan)) == (True, False)


def test_only_the_last_of_several_blocks_ends_orphans() -> None:
    """An orphan of one run lives until no other run could be using it."""
    living, after = ran(
        "import os\nfirst, second = adopting(), adopting()\nfirst.__enter__(); second.__enter__()\n"
        f"{ORPHAN}\nfirst.__exit__(None, None, None)\nos.kill(orphan, 0)\nliving = int(_adopts())\n"
        "second.__exit__(None, None, None)\nprint(living, orphan)"
    )
    assert (living, is_there(after)) == (1, False)


def test_a_process_that_adopted_before_still_does() -> None:
    (adopts,) = ran(
        "from harness.machine.process_control import adopt_orphans\nadopt_orphans()\n"
        "with adopting():\n    pass\nprint(int(_adopts()))"
    )
    assert adopts == 1


def test_each_door_to_trials_adopts() -> None:
    """The executors of runs, calibration, pytest and harness.run; replay; planting."""
    harness = Path(__file__).parents[2] / "harness"
    doors = {
        str(path.relative_to(harness))
        for path in harness.rglob("*.py")
        if "LocalExecutor(" in path.read_text() and path.name != "local_executor.py"
    }
    assert doors == {"tools/replay/case_replay.py", "tools/planting/campaign.py"}
    for door in (*doors, "execution/local_executor.py"):
        assert "adopting()" in (harness / door).read_text()
