"""The survey of tools that answer, are missing, fail or hang."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.machine import installed
from harness.machine.installed import Tool, vulkan_gpu
from harness.tools.doctor import survey as surveying
from harness.tools.doctor.survey import Toolchain, survey

PTXAS = """#!/bin/sh
case $1 in
--version) echo "Cuda compilation tools, release 12.9, V12.9.86";;
--help) echo "--gpu-name <gpu name>"; echo "  Allowed: 'compute_90','lto_90','sm_121a'";
        echo "  'sm_121','sm_75','sm_90a'.";;
esac
"""

# As vulkaninfo 1.3.239 printed it with Mesa's software driver, fields left out.
VULKANINFO = """#!/bin/sh
cat <<'END'
Devices:
========
GPU0:
	apiVersion         = 1.3.230
	deviceType         = PHYSICAL_DEVICE_TYPE_CPU
	deviceName         = llvmpipe (LLVM 15.0.6, 256 bits)
	driverName         = llvmpipe
	driverInfo         = Mesa 22.3.6 (LLVM 15.0.6)
END
"""

SINFO = """#!/bin/sh
case $1 in
--version) echo "slurm-wlm 22.05.8";;
*) echo "debug* up, 1 nodes, gres gpu:2";;
esac
"""

WGPU = """
class Adapter:
    def __init__(self, backend):
        self.info = {"device": "NVIDIA H200", "description": "580", "adapter_type": "DiscreteGPU",
                     "backend_type": backend, "vendor_id": 4318}
class gpu:
    def enumerate_adapters_sync():
        return [Adapter("Vulkan"), Adapter("OpenGL")]
"""

_OPTIONAL = ("wgpu", "triton")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine: only the shell's tools on PATH, only torch as a package; tests add the rest."""
    for name in ("CUDA_HOME", "CUDA_PATH", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    for needed in ("cat", "sleep", "sh"):
        (tmp_path / "bin" / needed).symlink_to(f"/bin/{needed}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    for package in _OPTIONAL:
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Hiding(tmp_path), *sys.meta_path])
    return tmp_path


class _Hiding:
    """Finds none of the optional packages, so that only those in the folder exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse packages that this interpreter has and the folder has not."""
        if name in _OPTIONAL and not (self._folder / name).is_dir():
            raise ModuleNotFoundError(f"no {name} on this machine", name=name)


def put(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    return path


def bundled(tools: Toolchain) -> list[Tool]:
    """Hide the machine's own /usr/local/cuda."""
    return [tool for tool in tools.ptxas if tool.details.get("found_by") != "/usr/local/cuda"]


def test_every_ptxas_that_triton_could_use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's own, that of the variable, and the toolkit's are each listed once, with their targets."""
    put(folder / "triton" / "__init__.py", "__version__ = '3.9.0'\nraise SystemExit('imported')\n")
    own = put(folder / "triton" / "backends" / "nvidia" / "bin" / "ptxas-blackwell", PTXAS)
    named = put(folder / "mine" / "ptxas", PTXAS)
    toolkit = put(folder / "cuda" / "bin" / "ptxas", PTXAS)
    (folder / "bin" / "ptxas").symlink_to(toolkit)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(named))
    monkeypatch.setenv("CUDA_HOME", str(folder / "cuda"))
    tools = survey()
    assert (tools.triton.version, tools.triton.reason) == ("3.9.0", None)
    assert [(tool.path, tool.details["found_by"]) for tool in bundled(tools)] == [
        (str(named), "TRITON_PTXAS_PATH"),
        (str(own), "Triton"),
        (str(toolkit), "CUDA_HOME"),
    ]
    assert {tool.version for tool in bundled(tools)} == {"12.9.86"}
    assert bundled(tools)[0].details["targets"] == ["sm_75", "sm_90a", "sm_121", "sm_121a"]


def test_a_named_ptxas_that_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/nowhere/ptxas")
    (tool,) = bundled(survey())
    assert tool.path == "/nowhere/ptxas"
    assert tool.reason == "ptxas does not start: No such file or directory"


def test_torch_is_read_and_not_imported(folder: Path) -> None:
    source = "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
    put(folder / "torch" / "__init__.py", "raise SystemExit('imported')")
    put(folder / "torch" / "version.py", source)
    script = "from harness.tools.doctor.survey import survey; t = survey().torch; print(t.version, t.details)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2.13.0+cu130 {'cuda': '13.0', 'hip': None}"


def test_vulkan_through_wgpu(folder: Path) -> None:
    put(folder / "wgpu" / "__init__.py", WGPU)
    (adapter,) = survey().vulkan
    assert adapter.details == {"adapter": "NVIDIA H200", "driver": "580", "type": "DiscreteGPU"}


@pytest.mark.parametrize(
    ("line", "cuda"),
    [
        ("cuda: Optional[str] = None", None),
        ("cuda = '13.0'", "13.0"),
        ("cuda = os.environ['CUDA']", "of an unknown version"),
        ("", "of an unknown version"),
    ],
)
def test_only_a_torch_that_says_so_is_without_cuda(
    folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, cuda: str | None
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # other tests have imported the real one
    put(folder / "torch" / "__init__.py", "raise SystemExit('imported')")
    put(folder / "torch" / "version.py", f"__version__ = '2.13.0'\n{line}\n")
    assert survey().torch.details["cuda"] == cuda


@pytest.mark.parametrize(
    ("loader", "remedy"), [(None, "libvulkan1"), ("libvulkan.so.1", "libnvidia-gl), or Mesa's in software")]
)
def test_no_vulkan_adapter_comes_with_the_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch, loader: str | None, remedy: str
) -> None:
    put(folder / "wgpu" / "__init__.py", "class gpu:\n    enumerate_adapters_sync = staticmethod(lambda: [])\n")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: loader)
    (tool,) = survey().vulkan
    assert str(tool.reason).startswith("wgpu lists no Vulkan adapter; ")
    assert remedy in str(tool.reason)


def test_slurm(folder: Path) -> None:
    put(folder / "bin" / "sinfo", SINFO)
    slurm = survey().slurm
    assert (slurm.version, slurm.reason) == ("22.05.8", None)
    assert slurm.details["partitions"] == ["debug* up, 1 nodes, gres gpu:2"]


def test_everything_missing_is_said(folder: Path) -> None:
    tools = survey()
    assert tools.slurm.reason == "sinfo is not on PATH"
    assert tools.triton.reason == "not installed for this Python"
    assert tools.vulkan[0].reason == "the package wgpu is not installed"


def test_tools_that_hang_or_fail_are_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    put(folder / "bin" / "sinfo", "#!/bin/sh\nsleep 1000\n")
    put(folder / "wgpu" / "__init__.py", "print('[[[')\nimport os; os._exit(0)\n")
    for module in (installed, surveying):
        monkeypatch.setattr(module, "SECONDS", 0.5)
    tools = survey()
    assert tools.slurm.reason == "sinfo gave no answer within 0.5 s"
    assert str(tools.vulkan[0].reason).split(": ")[:2] == snapshot
    (folder / "wgpu" / "__init__.py").write_text("raise SystemExit(7)")
    (tool,) = survey().vulkan
    assert tool.reason == "wgpu: python ended with status 7"


def test_the_gpu_that_vulkan_lists_first(folder: Path) -> None:
    """The GPU is identified by NVML's uuid. A software adapter is not a GPU."""
    assert vulkan_gpu() is None
    put(folder / "bin" / "vulkaninfo", VULKANINFO)
    assert vulkan_gpu() is None
    gpu = "GPU{}:\n\tdeviceType = PHYSICAL_DEVICE_TYPE_DISCRETE_GPU\n\tdeviceUUID = 0000000{}-aaaa\n"
    listed = VULKANINFO.replace("\nEND\n", f"\n{gpu.format(1, 7)}{gpu.format(2, 8)}END\n")
    put(folder / "bin" / "vulkaninfo", listed)
    assert vulkan_gpu() == "GPU-00000007-aaaa"
