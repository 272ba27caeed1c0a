"""Kernels that are built once for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from falsifiers.blackwell.ptx import external
from falsifiers.blackwell.reference.host_device import HostDevice
from falsifiers.blackwell.reference.kernel_archive import Archive, build
from falsifiers.blackwell.reference.kernel_cache import KernelCache
from falsifiers.blackwell.reference.kernels.catalogue import add, rms_norm
from falsifiers.blackwell.reference.kernels.nvrtc import Form, Image
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.ptx_backend import PtxBackend
from tests.falsifiers.blackwell.archived.engines import AnyGpu
from tests.falsifiers.blackwell.watched import PROJECT
from tests.tools.recorder.fakes import Fakes

SPECS = (add(), rms_norm(64, 1e-6))
SMS = (90, 121)


class NoImages:
    """A source of empty images, for a CPU that runs the kernels' text."""

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        return Image(Form.CUBIN, b""), None


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that the workers of pytest-xdist share."""
    folder = tmp_path_factory.getbasetemp()
    return folder if worker_id == "master" else folder.parent


@pytest.fixture(scope="session", autouse=True)
def triton_cache(shared: Path) -> Iterator[None]:
    """Give all tests of a session one cache of compiled Triton kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(shared / "triton"))
        yield


@pytest.fixture(scope="session")
def host_kernels(shared: Path) -> Path:
    """The folder in which all tests of a session keep our kernels, each built once for the CPU."""
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("needs g++ or clang++")
    folder = shared / "host-kernels"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def on_the_cpu(host_kernels: Path) -> PtxBackend:
    """The backend of our kernels, whose text is built for the CPU."""
    return PtxBackend(KernelCache(NoImages(), HostDevice(host_kernels)))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of two kernels for two targets. Tests copy it."""
    pytest.importorskip("cuda.bindings")
    folder = tmp_path_factory.mktemp("archive")
    build(folder, SPECS, SMS)
    return folder


@pytest.fixture
def archive(built: Path, tmp_path: Path) -> Archive:
    """A copy of that archive, which a test may damage."""
    return Archive.open(Path(shutil.copytree(built, tmp_path / "archive")))


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Fakes:
    """A fake CUDA driver and its libraries, built once for a module."""
    return Fakes(tmp_path_factory.mktemp("fakes"))


@pytest.fixture
def fake_driver(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs find the fake driver, and NVML one process."""
    for name, value in fakes.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(PROJECT.root)
    monkeypatch.setattr(external, "DeviceWatch", AnyGpu)
