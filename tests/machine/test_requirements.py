"""The requirements of a claim that a host does not meet."""

from __future__ import annotations

import shutil
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.machine import installed, requirements
from harness.machine.host import Gpu
from harness.machine.installed import Tool
from harness.machine.requirements import out_of_reach, shortfalls, suitable
from tests.machine.invented_hosts import GIB, a_gpu, a_host


@pytest.mark.parametrize(
    ("requires", "count"),
    [
        pytest.param({"device": "any"}, 0, id="any device"),
        pytest.param({"device": "cuda"}, 0, id="cuda"),
        pytest.param({"device": "cuda", "memory_gib": 8, "compute_capability": "8.9", "gpus": 1}, 0, id="just enough"),
        pytest.param({"device": "cuda", "memory_gib": 24}, 1, id="memory of the GPU"),
        pytest.param({"device": "any", "memory_gib": 24}, 1, id="memory of the system"),
        pytest.param({"device": "cuda", "compute_capability": "12.1"}, 1, id="compute capability"),
        pytest.param({"device": "cuda", "gpus": 2}, 1, id="two GPUs"),
        pytest.param({"device": "any", "disk_gib": 60.5}, 1, id="disk"),
        pytest.param({"device": "any", "modules": ["json", "json.decoder", "os.path"]}, 0, id="modules"),
        pytest.param(
            {"device": "any", "modules": ["json.nothing", "nothing.json", "json.decoder.deeper"]}, 1, id="no modules"
        ),
        pytest.param({"device": "any", "modules": ["json", "nothing"]}, 1, id="one module of two"),
    ],
)
def test_shortfalls(requires: dict[str, Any], count: int, snapshot: SnapshotAssertion) -> None:
    """Each reason has the required and the found value."""
    reasons = shortfalls(requires, a_host(a_gpu()))
    assert len(reasons) == count
    if reasons:
        assert reasons == snapshot


def test_capability_is_compared_as_a_number() -> None:
    """As text, "12.1" would be older than "9.0"."""
    assert shortfalls({"device": "cuda", "compute_capability": "9.0"}, a_host(a_gpu(compute_capability="12.1"))) == []


def test_just_too_little_never_reads_as_enough() -> None:
    (reason,) = shortfalls({"device": "cuda", "memory_gib": 24}, a_host(a_gpu(memory_bytes=24 * GIB - 1)))
    assert "has 23.9 GiB" in reason


def test_no_gpu_is_said_once(snapshot: SnapshotAssertion) -> None:
    reasons = shortfalls({"device": "cuda", "memory_gib": 24, "compute_capability": "9.0"}, a_host())
    assert reasons == snapshot


def test_no_single_gpu_has_everything(snapshot: SnapshotAssertion) -> None:
    """A large old GPU and a small new one do not add up."""
    host = a_host(a_gpu(memory_bytes=48 * GIB), a_gpu(index=1, uuid="GPU-b", compute_capability="12.0"))
    requires = {"device": "cuda", "memory_gib": 24, "compute_capability": "12.0"}
    assert shortfalls(requires, host) == snapshot
    assert suitable(requires, host) == ()
    assert [gpu.uuid for gpu in suitable({"device": "cuda", "memory_gib": 24}, host)] == ["GPU-a"]


def test_enough_gpus_that_fit(snapshot: SnapshotAssertion) -> None:
    host = a_host(a_gpu(), a_gpu(index=1, uuid="GPU-b", memory_bytes=48 * GIB))
    assert shortfalls({"device": "cuda", "gpus": 2, "memory_gib": 24}, host) == snapshot


def test_modules_are_looked_up_without_running_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "explosive"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "part.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert shortfalls({"device": "any", "modules": ["explosive.part"]}, a_host()) == []


@pytest.mark.parametrize(
    ("wanted", "adapters", "reasons"),
    [
        ("any", [Tool("vulkan", details={"adapter": "llvmpipe", "type": "CPU"})], []),
        ("gpu", [Tool("vulkan", details={"adapter": "NVIDIA H200", "type": "DiscreteGPU"})], []),
        (
            "gpu",
            [Tool("vulkan", details={"adapter": "llvmpipe", "type": "CPU"})],
            ["needs the Vulkan adapter of a GPU; there is only software: llvmpipe"],
        ),
        (
            "any",
            [Tool("vulkan", reason="the package wgpu is not installed")],
            ["needs a Vulkan adapter; the package wgpu is not installed"],
        ),
    ],
)
def test_a_vulkan_adapter_is_looked_for_when_one_is_required(
    monkeypatch: pytest.MonkeyPatch, wanted: str, adapters: list[Tool], reasons: list[str]
) -> None:
    calls: list[float] = []
    monkeypatch.setattr(installed, "vulkan", lambda: calls.append(0.0) or tuple(adapters))
    requirements._vulkan_adapters.cache_clear()
    try:
        assert shortfalls({"device": "any"}, a_host()) == []
        assert not calls
        assert shortfalls({"device": "any", "vulkan": wanted}, a_host()) == reasons
    finally:
        requirements._vulkan_adapters.cache_clear()


@pytest.mark.parametrize(
    ("first", "gpus"), [("GPU-b", ["GPU-b"]), (None, ["GPU-a"]), ("GPU-c", [])], ids=["known", "unknown", "hidden"]
)
def test_a_claim_on_vulkan_gets_the_gpu_that_vulkan_takes(
    monkeypatch: pytest.MonkeyPatch, first: str | None, gpus: list[str]
) -> None:
    """CUDA_VISIBLE_DEVICES hides no GPU from Vulkan, so the lease must be of Vulkan's first GPU."""
    monkeypatch.setattr(requirements, "_vulkan_gpu", lambda: first)
    host = a_host(a_gpu(), a_gpu(index=1, uuid="GPU-b"))
    assert [gpu.uuid for gpu in suitable({"device": "cuda", "vulkan": "gpu"}, host)] == gpus
    assert suitable({"device": "cuda", "vulkan": "any"}, host) == host.gpus


def test_a_gpu_without_vulkan_comes_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """If the driver was installed only for computing, CUDA finds the GPU and Vulkan does not."""
    adapters = (Tool("vulkan", details={"adapter": "llvmpipe", "type": "CPU"}),)
    monkeypatch.setattr(requirements, "_vulkan_adapters", lambda: adapters)
    gpu = Gpu(0, "GPU-0", "NVIDIA GB10", "12.1", 120 * GIB, "system memory", True)
    (reason,) = shortfalls({"device": "cuda", "vulkan": "gpu"}, a_host(gpu))
    assert reason == snapshot


BUILT_FOR_CPU = "needs a torch that was built for CUDA; 2.13.0 was not (pytorch.org has both)"


NEWER_THAN_DRIVER = "needs a driver for CUDA 13.0, for which torch 2.13.0 was built; this one is for 12.8"


@pytest.mark.parametrize(
    ("cuda", "driver", "reasons"),
    [
        (None, "13.0", [BUILT_FOR_CPU]), ("13.0", "13.0", []), ("13.2", "13.0", []), ("12.8", "13.0", []),
        ("13.0", "12.8", [NEWER_THAN_DRIVER]), ("13.0", None, []), ("of an unknown version", "12.8", []),
    ],
)  # fmt: skip
def test_a_torch_that_finds_no_gpu_is_none_for_a_gpu(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, driver: str | None, reasons: list[str]
) -> None:
    """The error would be raised in the subject's code, so an installation without CUDA would refute the claim."""
    monkeypatch.setattr(requirements, "_exists", lambda name: True)
    tool = Tool("torch", "2.13.0", "/site-packages/torch", {"cuda": cuda, "hip": None})
    monkeypatch.setattr(installed, "torch", lambda: tool)
    host = a_host(a_gpu(), cuda_driver_version=driver)
    assert shortfalls({"device": "cuda", "modules": ["torch"]}, host) == reasons
    assert shortfalls({"device": "any", "modules": ["torch"]}, host) == []
    assert shortfalls({"device": "cuda", "modules": ["numpy"]}, host) == []
    assert len(shortfalls({"device": "cuda", "modules": ["torch"]}, a_host())) == 1  # it lacks only the GPU


@pytest.fixture
def with_triton(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A claim whose kernels Triton launches on the GPU; everything is installed."""
    monkeypatch.setattr(requirements, "_exists", lambda name: True)
    monkeypatch.setenv("CC", "/usr/bin/cc")
    return {"device": "cuda", "modules": ["triton"]}


def test_triton_needs_a_compiler_for_its_launcher(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_triton: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    """Without a compiler, its error would count as the subject's. On a CPU the interpreter compiles no launcher."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    assert shortfalls(with_triton, a_host(a_gpu())) == snapshot
    assert shortfalls({**with_triton, "device": "any"}, a_host(a_gpu())) == []
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    (reason,) = shortfalls(with_triton, a_host(a_gpu()))
    assert str(tmp_path / "Python.h") in reason
    (tmp_path / "Python.h").touch()
    assert shortfalls(with_triton, a_host(a_gpu())) == []


def test_what_no_installation_changes() -> None:
    """Too little memory and too few GPUs stay; a missing module, or a driver that finds no GPU, can be mended."""
    gpu = Gpu(0, "GPU-0", "NVIDIA GB10", "12.1", 121 * GIB, "system memory", True)
    gb10 = replace(a_host(), gpus=(gpu,))
    big: dict[str, Any] = {"device": "cuda", "memory_gib": 130}
    assert len(out_of_reach(big, gb10)) == 1
    assert len(out_of_reach({"device": "cuda", "gpus": 2}, gb10)) == 1
    assert out_of_reach({"device": "cuda", "memory_gib": 120, "modules": ["no_such_module"]}, gb10) == []
    assert out_of_reach(big, replace(gb10, gpus=())) == []


def test_folders_without_code_are_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout on PYTHONPATH has folders within folders, none with an __init__.py."""
    inner = tmp_path / "outer_folder" / "inner_folder"
    inner.mkdir(parents=True)
    (inner / "found.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ["outer_folder.inner_folder", "outer_folder.inner_folder.found"]
    assert shortfalls({"device": "any", "modules": names}, a_host()) == []
