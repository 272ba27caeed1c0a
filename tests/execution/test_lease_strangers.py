"""Leases, and processes that use a GPU without a lease."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.execution.lease import (
    Holder,
    LeaseUnavailable,
    lease,
    other_processes,
)
from harness.machine.host import Gpu
from tests.recorded import replay

H200 = Gpu(0, "GPU-00000000-0000-0000-0000-000000000200", "NVIDIA H200", "9.0", 1, "NVML", False)


def test_an_exclusive_lease_waits_for_processes_without_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """An exclusive lease waits for such processes, except its own process and its children.

    A shared lease waits for none.
    """
    pynvml = replay("h200", monkeypatch, tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pynvml.running = [(os.getpid(), 1), (child.pid, 1), (os.getppid(), 1)]
    assert [one.pid for one in other_processes(H200, folder)] == [os.getppid()]
    with monkeypatch.context() as patch:
        patch.setattr("harness.execution.lease.list_holders", lambda _: (Holder.of_process(os.getppid(), 0.0),))
        assert other_processes(H200, folder) == ()  # holders of leases are not other_processes
    told_of = rf"held by .* \(pid {os.getppid()}, .*, without a lease"
    held = lease(H200, mode="exclusive", holder="F-A", wait_seconds=0.1, directory=folder)
    with pytest.raises(LeaseUnavailable, match=told_of), held:
        pass
    with lease(H200, mode="shared", holder="F-A", wait_seconds=0, directory=folder):
        pass
    pynvml.running = [(4194999, 1)]
    threading.Timer(0.9, pynvml.running.clear).start()
    told: list[tuple[Holder, ...]] = []
    with lease(H200, mode="exclusive", holder="F-A", wait_seconds=5, directory=folder, on_wait=told.append) as held:
        assert held.key == H200.uuid
        assert held.waited_seconds > 0.4
    assert told[0][0].text == snapshot
    child.communicate(b"\n")


def test_a_process_that_has_just_ended_is_no_holder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver lists an ended process, such as that of the trial before, for another moment."""
    pynvml = replay("h200", monkeypatch, tmp_path)
    pynvml.running = [(4194999, 1)]
    threading.Timer(0.15, pynvml.running.clear).start()
    with lease(H200, mode="exclusive", holder="F-A", wait_seconds=0, directory=folder):
        pass


def test_without_nvml_nobody_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replay("none", monkeypatch, tmp_path)
    with lease(H200, mode="exclusive", holder="F-A", wait_seconds=0, directory=folder):
        pass
