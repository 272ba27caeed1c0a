"""Samples of real processes, and the driver's view, replayed from recorded drivers."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from harness.machine import process_tree
from harness.machine.host import Gpu, probe
from harness.machine.telemetry import COLUMNS, DriverResidency, Sampler, Telemetry
from tests.recorded import replay

H200 = Gpu(0, "GPU-00000000-0000-0000-0000-000000000200", "NVIDIA H200", "9.0", 1, "NVML", False)
GB10 = Gpu(0, "GPU-00000000-0000-0000-0000-0000000000b1", "NVIDIA GB10", "12.1", 1, "system memory", True)

BUSY_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "x = bytearray(100 << 20)\\nprint('ready', flush=True)\\nwhile 1: x"])
child.wait()
"""


@contextmanager
def running(script: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


def sampled(gpu: Gpu | None, pid: int | None = None, more: int = 0) -> Telemetry:
    """The samples of a process, by default of this one: the first, and how many more."""
    sampler = Sampler(gpu, interval=60)
    sampler.watch(os.getpid() if pid is None else pid)
    for _ in range(more):
        sampler.sample()
    return sampler.stop()


def column(telemetry: Telemetry, name: str) -> list[float | int | None]:
    return [row[COLUMNS.index(name)] for row in telemetry.rows]


def processor_seconds(pid: int) -> float:
    """What a process and its children have used."""
    root = psutil.Process(pid)
    return sum(process.cpu_times().user + process.cpu_times().system for process in [root, *root.children()])


def test_a_tree_of_processes_is_sampled_from_outside() -> None:
    """Memory and processor time of a child count for the watched process."""
    with running(BUSY_CHILD) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        sampler = Sampler(None, interval=0.1)
        before, used = time.monotonic(), processor_seconds(process.pid)
        sampler.watch(process.pid)
        time.sleep(1)
        used, seconds_passed = processor_seconds(process.pid) - used, time.monotonic() - before
        telemetry = sampler.stop()
    assert len(telemetry.rows) >= 2
    assert telemetry.peak("processes") == 2
    assert (telemetry.peak("rss_bytes") or 0) > 100 << 20
    # The busiest interval is at least as busy as the whole; how busy that is, the machine's load decides.
    assert 80 * used / seconds_passed < (telemetry.peak("cpu_percent") or 0) < 150
    assert (telemetry.peak("system_available_bytes") or 0) > 1 << 20
    seconds = [cell for cell in column(telemetry, "seconds") if cell is not None]
    assert seconds == sorted(seconds)


def test_without_a_gpu_every_gpu_column_says_why() -> None:
    telemetry = sampled(None)
    for name in COLUMNS:
        if name.startswith("gpu_"):
            assert set(column(telemetry, name)) == {None}
            assert telemetry.reasons[name] == "no GPU was leased"
    assert telemetry.residency == DriverResidency(None, None, "no GPU was leased")


def test_a_trial_that_ends_at_once_still_has_a_sample() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    sampler = Sampler(None)
    sampler.watch(process.pid)
    process.wait()
    telemetry = sampler.stop()
    assert len(telemetry.rows) == 1
    assert sampler.stop() is telemetry


def test_a_process_that_is_gone_is_no_zero() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    telemetry = sampled(None, process.pid)
    assert column(telemetry, "rss_bytes") == [None]
    assert telemetry.reasons["rss_bytes"] == "no watched process was alive"


def test_nothing_is_sampled_after_stop() -> None:
    sampler = Sampler(None, interval=0.05)
    sampler.watch(os.getpid())
    telemetry = sampler.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "harness-telemetry"]
    sampler.sample()
    sampler.watch(os.getpid())
    assert sampler.stop().rows == telemetry.rows


def test_nothing_was_watched() -> None:
    sampler = Sampler(None)
    sampler.sample()
    telemetry = sampler.stop()
    assert telemetry.rows == ()
    assert telemetry.reasons == {"seconds": "nothing was sampled"}
    assert telemetry.peak("rss_bytes") is None


def test_the_newest_sample_is_at_hand() -> None:
    sampler = Sampler(None, interval=60)
    assert sampler.latest == {}
    sampler.watch(os.getpid())
    sampler.sample()
    assert (sampler.latest["rss_bytes"] or 0) > 0
    sampler.stop()


def test_sampling_costs_less_than_a_hundredth_of_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a sample takes 5 ms of processor time, samples become rarer."""

    def dear(self: object) -> process_tree.Readings:
        begin = time.thread_time()
        while time.thread_time() - begin < 0.005:
            pass
        return {}, {}

    monkeypatch.setattr(process_tree.ProcessTree, "read", dear)
    sampler = Sampler(None, interval=0.01)
    sampler.watch(os.getpid())
    time.sleep(1.2)
    assert len(sampler.stop().rows) <= 5


def test_a_sample_that_fails_is_no_failure_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree.ProcessTree, "read", lambda self: {}["missing"])
    telemetry = sampled(None)
    assert telemetry.rows == ()
    assert telemetry.reasons["seconds"] == "a sample was lost: KeyError: 'missing'"


def test_a_driver_that_hangs_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that hangs delays neither the reader of a sample, who watches a time limit, nor the end of sampling."""
    import harness.machine.telemetry as module

    monkeypatch.setattr(module, "_SAMPLE_SECONDS", 0.2)
    monkeypatch.setattr(module, "_STOP_SECONDS", 0.2)
    over = threading.Event()
    monkeypatch.setattr(process_tree.ProcessTree, "read", lambda self: [{} for _ in range(2) if over.wait(300)])
    sampler = Sampler(None)
    sampler.watch(os.getpid())
    sampler.sample()
    telemetry = sampler.stop()
    assert telemetry.reasons["seconds"] == "sampling hung and was given up after 0.2 s"
    over.set()
    deadline = time.monotonic() + 60
    while any(thread.name == "harness-telemetry" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sampler.stop().rows == ()


def test_gb10(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Device memory is not supported, memory per process is; the reason is recorded."""
    pynvml = replay("gb10", monkeypatch, tmp_path)
    pynvml.running = [(os.getpid(), 7 << 30), (1, 1 << 30)]
    telemetry = sampled(GB10)
    assert set(column(telemetry, "gpu_memory_used_bytes")) == {None}
    assert telemetry.reasons["gpu_memory_used_bytes"] == "NVML: Not Supported"
    assert column(telemetry, "gpu_process_memory_bytes")[0] == 7 << 30
    assert column(telemetry, "gpu_power_watts")[0] == 11.2
    assert column(telemetry, "gpu_temperature_celsius")[0] == 35
    assert column(telemetry, "gpu_utilisation_percent")[0] == 0
    assert telemetry.residency == DriverResidency(True, 7 << 30, None)


def test_a_slice_of_mig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Memory and processes are those of the leased slice. Values that NVML has only for the whole GPU are not used."""
    pynvml = replay("mig", monkeypatch, tmp_path)
    process = {"pid": os.getpid(), "usedGpuMemory": 1 << 30}
    monkeypatch.setitem(pynvml.RECORDING["devices"][1], "nvmlDeviceGetComputeRunningProcesses", {"value": [process]})
    for gpu, seen in zip(probe().gpus, (True, False), strict=True):
        telemetry = sampled(gpu)
        assert telemetry.residency.seen is seen
        assert column(telemetry, "gpu_memory_used_bytes")[0] == 33554432
        assert column(telemetry, "gpu_power_watts")[0] is None
        assert telemetry.reasons["gpu_power_watts"] == "NVML: Not Supported"


def test_a_descendant_on_the_gpu_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A descendant counts, even if sampling has not found it when the driver lists it."""
    pynvml = replay("h200", monkeypatch, tmp_path)
    with running(BUSY_CHILD) as process:
        assert process.stdout
        process.stdout.readline()
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/stat").read_text().split()[0])
        tree = process_tree.ProcessTree()
        tree.add(process.pid)
        children = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent(int(pid)) == child]
        assert [tree.owns(pid) for pid in (*children, os.getpid(), 1)] == [True, False, False]
        pynvml.running = [(pid, 1 << 30) for pid in children]
        telemetry = sampled(H200, process.pid)
    assert telemetry.residency == DriverResidency(True, 1 << 30, None)


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def test_the_driver_never_saw_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A silent fall-back to the CPU shows: NVML answers, and lists only other processes."""
    pynvml = replay("h200", monkeypatch, tmp_path)
    pynvml.running = [(1, 1 << 30)]
    telemetry = sampled(H200, more=1)
    assert telemetry.residency == DriverResidency(False, None, None)
    assert telemetry.reasons["gpu_process_memory_bytes"] == "NVML did not list the trial's processes on this GPU"


def test_seen_but_memory_not_available(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pynvml = replay("h200", monkeypatch, tmp_path)
    for hidden in (None, 2**64 - 1):
        pynvml.running = [(os.getpid(), hidden)]
        residency = sampled(H200).residency
        assert residency == DriverResidency(True, None, "NVML lists the process but not how much memory it has")


def test_ids_of_another_namespace_decide_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """In a container the driver may list the trial under an unknown id.

    The trial then counts neither as seen nor as unseen.
    """
    pynvml = replay("h200", monkeypatch, tmp_path)
    pynvml.running = [(4194999, 1 << 30), (0, None)]
    residency = sampled(H200, more=1).residency
    assert residency.seen is None
    assert residency.reason == snapshot


@pytest.mark.parametrize("once", [False, True])
def test_nvml_fails(once: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One unanswered question is enough, because the trial may have been on the GPU at that time."""
    pynvml = replay("h200", monkeypatch, tmp_path)
    pynvml.running = []
    pynvml.broken.add("nvmlDeviceGetComputeRunningProcesses")
    sampler = Sampler(H200, interval=60)
    sampler.watch(os.getpid())
    sampler.sample()
    if once:
        pynvml.broken.clear()
        sampler.sample()
    assert sampler.stop().residency == DriverResidency(None, None, "NVML: Unknown Error")


def test_no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    replay("none", monkeypatch, tmp_path)
    telemetry = sampled(H200)
    assert telemetry.residency.seen is None
    assert telemetry.residency.reason == snapshot
    assert telemetry.reasons["gpu_power_watts"] == telemetry.residency.reason


def test_a_gpu_that_fell_off_the_bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replay("gb10", monkeypatch, tmp_path)
    assert sampled(H200).residency == DriverResidency(None, None, "NVML: Not Found")


ON_GPU = """
import sys, time, torch
x = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.cuda
@pytest.mark.parametrize("on_gpu", [True, False])
def test_residency_on_a_real_gpu(on_gpu: bool) -> None:
    """The real driver sees the trial that uses the GPU, and not the one that has fallen back to the CPU."""
    gpus = probe().gpus
    if not gpus or importlib.util.find_spec("torch") is None:
        pytest.skip(f"needs a CUDA GPU and torch; {probe().gpu_reason}")
    with running(ON_GPU if on_gpu else ON_GPU.replace('"cuda"', '"cpu"')) as process:
        sampler = Sampler(gpus[0])
        sampler.watch(process.pid)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        sampler.sample()
        telemetry = sampler.stop()
    print(COLUMNS, *telemetry.rows, telemetry.reasons, telemetry.residency, sep="\n")
    assert telemetry.residency.seen is on_gpu
    if on_gpu:
        assert (telemetry.residency.peak_bytes or 0) > 256 << 20
