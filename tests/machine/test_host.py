"""The offers of a host, with recorded drivers, and the reports of missing parts."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.machine import host as hosts
from harness.machine import nvml, provenance, timebox
from harness.machine.git import commit
from harness.machine.health import Health
from harness.machine.host import probe
from harness.machine.provenance import software
from harness.machine.requirements import shortfalls, suitable
from tests.machine.invented_hosts import GIB, a_host
from tests.recorded import replay


def test_gb10_has_the_systems_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NOT_SUPPORTED is not zero. The device shares the machine's memory, and the source of the value says so."""
    replay("gb10", monkeypatch, tmp_path)
    (gpu,) = probe().gpus
    assert (gpu.name, gpu.compute_capability, gpu.unified) == ("NVIDIA GB10", "12.1", True)
    assert gpu.memory_bytes == 127600748 * 1024
    assert gpu.memory_source == "system memory, unified; NVML: Not Supported"


def test_h200_has_memory_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replay("h200", monkeypatch, tmp_path)
    host = probe()
    (gpu,) = host.gpus
    assert (gpu.name, gpu.compute_capability, gpu.unified) == ("NVIDIA H200", "9.0", False)
    assert (gpu.memory_bytes, gpu.memory_source) == (143771 * 2**20, "NVML")
    assert (host.driver, host.cuda_driver_version, host.gpu_reason) == ("580.159.04", "13.0", None)


def test_no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    replay("none", monkeypatch, tmp_path)
    host = probe()
    assert (host.gpus, host.driver, host.cuda_driver_version) == ((), None, None)
    assert host.gpu_reason == snapshot
    (shortfall,) = shortfalls({"device": "cuda"}, host)
    assert str(host.gpu_reason) in shortfall


def test_no_binding(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert probe().gpu_reason == snapshot


def test_zero_bytes_are_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """Some drivers report success and zeros for a device without its own memory."""
    module = replay("h200", monkeypatch, tmp_path)
    answer = {"value": {"total": 0, "free": 0, "used": 0}}
    monkeypatch.setitem(module.RECORDING["devices"][0], "nvmlDeviceGetMemoryInfo", answer)
    (gpu,) = probe().gpus
    assert (gpu.memory_bytes, gpu.unified) == (None, None)
    assert gpu.reasons == snapshot(name="reasons")
    assert shortfalls({"device": "cuda", "memory_gib": 1}, a_host(gpu)) == snapshot(name="shortfalls")


@pytest.mark.parametrize(("mode", "unified"), [({"value": 2}, True), ({"value": 1}, False), ({"error": 13}, None)])
def test_as_much_memory_as_the_system(
    mode: dict[str, int], unified: bool | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If NVML reports the system's total, only the addressing mode shows that the memory is unified."""
    module = replay("gb10", monkeypatch, tmp_path)
    answer = {"value": {"total": 127600748 * 1024, "free": 0, "used": 0}}
    monkeypatch.setitem(module.RECORDING["devices"][0], "nvmlDeviceGetMemoryInfo", answer)
    monkeypatch.setitem(module.RECORDING["devices"][0], "nvmlDeviceGetAddressingMode", mode)
    (gpu,) = probe().gpus
    assert gpu.unified is unified
    assert ("unified" in gpu.reasons) == (unified is None)


@pytest.mark.parametrize(
    ("variable", "count"), [("", 0), ("-1", 0), ("0", 1), ("GPU-", 1), ("0,0", 1), ("1", 0), ("0,GPU-other", 1)]
)
def test_visible_devices(variable: str, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A GPU that Slurm or the user hides is not offered, and the reason names the variable."""
    replay("h200", monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    host = probe()
    assert len(host.gpus) == count
    if not count:
        assert host.gpu_reason == f"CUDA_VISIBLE_DEVICES={variable} leaves 0 of 1 GPUs"


MIG = "MIG-00000000-0000-0000-0000-00000000030"


def test_the_slices_of_mig_stand_for_their_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each slice has its own name, memory and uuid. The compute capability and the index are the GPU's."""
    replay("mig", monkeypatch, tmp_path)
    host = probe()
    assert [(gpu.index, gpu.uuid, gpu.compute_capability) for gpu in host.gpus] == [
        (0, f"{MIG}0", "9.0"), (0, f"{MIG}1", "9.0"),
    ]  # fmt: skip
    assert [(gpu.name, gpu.memory_bytes, gpu.unified) for gpu in host.gpus] == [
        ("NVIDIA H200 MIG 3g.71gb", 74625056768, False), ("NVIDIA H200 MIG 1g.18gb", 18253611008, False),
    ]  # fmt: skip
    assert {gpu.parent for gpu in host.gpus} == {"GPU-00000000-0000-0000-0000-000000000200"}
    assert [gpu.uuid for gpu in suitable({"device": "cuda", "memory_gib": 24}, host)] == [f"{MIG}0"]


@pytest.mark.parametrize(
    ("variable", "slices"),
    [
        (f"{MIG}1", "1"),
        (f"{MIG}1,{MIG}0", "10"),
        ("0", "0"),
        ("GPU-00000000", "0"),
        ("MIG-00000000", ""),
        ("MIG-f", ""),
        ("1", ""),
    ],
)
def test_visible_slices(variable: str, slices: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A number or the uuid of the GPU selects its first slice. A beginning that two slices share selects none."""
    replay("mig", monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert [gpu.uuid for gpu in probe().gpus] == [f"{MIG}{number}" for number in slices]


def test_a_slice_is_broken_with_its_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The driver reports errors only for the whole GPU. The memory is that of the slice."""
    pynvml = replay("mig", monkeypatch, tmp_path)
    healths = [Health(gpu) for gpu in probe().gpus]
    assert [health.broken() for health in healths] == ["", ""]
    assert [memory and round(memory.total) for memory in (health.memory_gib() for health in healths)] == [70, 17]
    pynvml.lost.add(0)
    assert [health.broken() for health in healths] == ["GPU is lost", "GPU is lost"]


def test_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(nvml, "connect", lambda: over.wait(300))
    monkeypatch.setattr(hosts, "_SECONDS", 0.2)
    host = probe()
    assert not over.is_set()
    over.set()
    assert "no answer within 0.2 s" in str(host.gpu_reason)


def test_control_group_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container's limit counts, not the memory of the machine around it."""
    (tmp_path / "memory").mkdir()
    for file in ("memory.max", "memory/memory.limit_in_bytes"):  # of the top group, in either version
        (tmp_path / file).write_text("1073741824\n")
    monkeypatch.setattr(hosts, "_CGROUPS", tmp_path)
    host = probe()
    assert (host.memory_bytes, host.memory_source) == (GIB, "control group limit")


def test_software_names_every_distribution(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The versions are those that importlib.metadata reads from each METADATA file."""
    from importlib import metadata

    replay("gb10", monkeypatch, tmp_path)
    record = software(probe())
    assert record["python"]["version"] == sys.version.split()[0]
    assert (record["driver"], record["cuda_driver_version"]) == ("580.173.02", "13.0")
    for name in ("click", "nvidia-ml-py", "pytest", "psutil"):
        assert record["distributions"][name] == metadata.version(name)
    assert software(a_host())["driver_reason"] == "no driver"


def test_distribution_names(tmp_path: Path) -> None:
    for name in ("Jinja2-3.1.dist-info", "my_pkg.x-1.0+cu130.dist-info", "~ip-1.dist-info", "old-2-py3.11.egg-info"):
        (tmp_path / name).mkdir()
    assert provenance.distributions([str(tmp_path), str(tmp_path / "gone")]) == {
        "jinja2": "3.1",
        "my-pkg-x": "1.0+cu130",
        "old": "2",
    }


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def test_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    """The commit is unknown without a repository or a commit."""
    nowhere = commit(tmp_path)
    assert nowhere.value is None
    assert str(nowhere.reason).partition(" (")[0] == snapshot(name="no repository")  # git may name a mount point
    git(tmp_path, "init", "-q")
    empty = commit(tmp_path)
    assert empty.value is None
    assert empty.reason == snapshot(name="no commit")
    (tmp_path / "a.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    clean = commit(tmp_path)
    assert len(str(clean.value)) == 40
    assert clean.reason is None
    # A hook runs with GIT_DIR set to its own repository.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert commit(tmp_path).value == clean.value
    monkeypatch.setenv("PATH", "")
    assert commit(tmp_path).reason == "git does not start: No such file or directory"


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    answer = timebox.run(["sh", "-c", script], 0.5)
    assert answer == timebox.Answer(None, "sh gave no answer within 0.5 s")
    child = (tmp_path / "pid").read_text().strip()
    deadline = time.monotonic() + 60
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(child)


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_probing_loads_neither_torch_nor_cuda() -> None:
    script = (
        "import sys; from harness.machine.host import probe; from harness.machine.provenance import software;"
        "software(probe());"
        "print([name for name in ('torch', 'numpy', 'triton', 'rich', 'importlib.metadata') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
