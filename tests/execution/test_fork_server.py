"""A fork server on a machine that cannot fork, or whose supervisors fail before they begin."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from harness.execution.local_executor import LocalExecutor
from harness.judging.observation import EndingKind
from tests.execution.projects import run, write_project

# The server imports the falsifier's module, so the server meets what the module does to `os`. A file records that it
# happened once, because the memory of a fork is lost with it.
FAILS_ONCE = """
import os, pathlib
_{name}, _flag = os.{name}, pathlib.Path(__file__).with_name("failed")

def _failing(*arguments):
    if _flag.exists():
        return _{name}(*arguments)
    _flag.touch()
    raise BlockingIOError(11, "Resource temporarily unavailable")

os.{name} = _failing
"""


def below() -> set[int]:
    """The descendants of this process."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.parametrize("name", ["fork", "setsid"])
def test_the_next_trial_is_unharmed(tmp_path: Path, name: str) -> None:
    """A trial without a process or a supervisor is lost. Other trials run, and no process is left."""
    project = write_project(tmp_path)
    module = tmp_path / "toy" / "sorting.py"
    module.write_text(module.read_text() + FAILS_ONCE.format(name=name))
    others = below()  # such as the browser that other tests share
    with LocalExecutor(project, project.contract("F-TOY-SORT-001"), tmp_path / "cache") as executor:
        executor.imports()
        assert run(executor, "well").observation.ending.kind is EndingKind.LOST
        assert (tmp_path / "toy" / "failed").exists()
        assert run(executor, "well").observation.ending.kind is EndingKind.COMPLETED
        server = executor._server._process.pid
        deadline = time.monotonic() + 10  # a supervisor writes its last message just before it exits
        while below() - others != {server} and time.monotonic() < deadline:
            time.sleep(0.05)
        assert below() - others == {server}
    assert below() <= others
