"""A GPU watched through NVML, as recorded on real devices."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.authoring.device_watch import DeviceWatch
from harness.machine import nvml
from tests.recorded import replay


def listed(monkeypatch: pytest.MonkeyPatch, *answers: list[nvml.Process]) -> None:
    """NVML's answers in order; the last one repeats."""
    left = [*answers]
    monkeypatch.setattr(
        nvml.Device, "processes", lambda _: nvml.Reading(tuple(left.pop(0) if len(left) > 1 else left[0]))
    )


def test_an_h200_tells_its_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replay("h200", monkeypatch, tmp_path)
    with DeviceWatch() as watch:
        pass
    assert (watch.capability, watch.reason, watch.was_used) == (90, "", False)
    assert watch.peak_bytes is not None
    assert watch.free_bytes is not None
    assert min(watch.peak_bytes, watch.free_bytes) > 0


def test_a_gb10_tells_of_its_processes_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a GB10, NVML reports processes but no device memory.

    Processes from before the watch are not part of the engine.
    """
    replay("gb10", monkeypatch, tmp_path)
    listed(monkeypatch, [nvml.Process(7, 2**20)], [nvml.Process(7, 2**20), nvml.Process(8, 2**30)])
    with DeviceWatch() as watch:
        time.sleep(0.05)
    assert (watch.capability, watch.was_used, watch.peak_bytes) == (121, True, 2**30 + 2**20)
    assert watch.free_bytes is None


def test_processes_that_others_started_are_no_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another trial, here the parent, is not the engine. A child is, and so is what the machine does not list."""
    replay("h200", monkeypatch, tmp_path)
    with subprocess.Popen(["sleep", "60"]) as child:
        pids = (os.getppid(), child.pid, 2**22 + 1)
        listed(monkeypatch, [], [nvml.Process(pid, 2**20) for pid in pids])
        with DeviceWatch() as watch:
            time.sleep(0.05)
        child.kill()
    assert (watch.was_used, watch.users) == (True, 2)


def test_a_gb10_that_tells_no_memory_at_all_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    replay("gb10", monkeypatch, tmp_path)
    listed(monkeypatch, [], [nvml.Process(8, None)])
    with DeviceWatch() as watch:
        time.sleep(0.05)
    assert (watch.peak_bytes, watch.was_used) == (None, True)
    assert watch.reason == snapshot


def test_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replay("none", monkeypatch, tmp_path)
    with DeviceWatch() as watch:
        pass
    assert (watch.capability, watch.peak_bytes, watch.was_used) == (None, None, False)
    assert watch.reason


def test_two_gpus_cannot_be_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(
        "harness.authoring.device_watch.probe", lambda: SimpleNamespace(gpus=("one", "two"), gpu_reason=None)
    )
    assert DeviceWatch().reason == snapshot
