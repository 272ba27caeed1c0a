"""The CUDA kernels on a GPU: `pytest -m cuda tests/falsifiers/blackwell`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.kernel_archive import Archive, build
from falsifiers.blackwell.reference.kernel_cache import ArchiveSource, CompilerSource, KernelCache
from falsifiers.blackwell.reference.kernels.catalogue import add, block_kernels
from falsifiers.blackwell.reference.kernels.nvrtc import Form
from falsifiers.blackwell.reference.ptx_backend import PtxBackend
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.reference.torch_backend import TorchBackend
from falsifiers.blackwell.subjects.prewarm_keys import Source

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def cache_of(source: Source) -> KernelCache:
    from falsifiers.blackwell.reference.cuda_device import CudaDevice

    return KernelCache(source, CudaDevice())


def own_target() -> int:
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


@pytest.mark.parametrize("kind", ["archive", "cubin", "ptx"])
@pytest.mark.parametrize("model", ["qwen2-tiny", "qwen2-0.5b"])
def test_a_block_is_right_from_every_source(kind: str, model: str, tmp_path: Path) -> None:
    """The block agrees with the formulas in float64 on the same GPU. Only the archive compiles nothing."""
    shape = SHAPES[model]
    source: Source = CompilerSource(Form.PTX if kind == "ptx" else Form.CUBIN)
    if kind == "archive":
        source = ArchiveSource(build(tmp_path, block_kernels(shape), [own_target()]))
    cache = cache_of(source)
    backend = PtxBackend(cache)
    backend.prewarm(shape)
    warmed = cache.compilations
    assert warmed == (0 if kind == "archive" else len(block_kernels(shape)))
    weights = new_weights(shape, 1, dtype=torch.float32, device="cuda")
    exact = {name: weight.double() for name, weight in weights.items()}
    x, gradient = (torch.randn(2, 70, shape.hidden, device="cuda") for _ in range(2))
    output, saved = Block(shape, backend).forward(x, weights)
    of_x, of_weights = Block(shape, backend).backward(saved, weights, gradient)
    expected, kept = Block(shape, TorchBackend()).forward(x.double(), exact)
    expected_of_x, expected_of_weights = Block(shape, TorchBackend()).backward(kept, exact, gradient.double())
    for found, wanted in [
        (output, expected),
        (of_x, expected_of_x),
        *((of_weights[name], expected_of_weights[name]) for name in of_weights),
    ]:
        torch.testing.assert_close(
            found.double() / wanted.abs().max(), wanted / wanted.abs().max(), rtol=0.0, atol=2e-5
        )
    assert cache.compilations == warmed
    assert set(cache.requested) == {spec.key for spec in block_kernels(shape)}


def test_kernels_follow_torchs_current_stream() -> None:
    backend = PtxBackend(cache_of(CompilerSource(Form.CUBIN)))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        a = torch.ones(1 << 20, device="cuda")
        total = backend.add(a, a)
    stream.synchronize()
    assert bool((total == 2).all())


def test_ptx_is_refused_where_the_driver_must_not_compile_and_an_archive_is_not(tmp_path: Path) -> None:
    """The driver reads the environment at its start, so the test uses another process."""
    build(tmp_path / "archive", [add()], [own_target()])
    code = f"""
import torch
from pathlib import Path
from falsifiers.blackwell.reference.cuda_device import CudaDevice, DriverError
from falsifiers.blackwell.reference.kernel_archive import Archive
from falsifiers.blackwell.reference.kernels.catalogue import add
from falsifiers.blackwell.reference.kernels.nvrtc import Form, compile_kernel
device = CudaDevice()
device.load(add(), Archive.open(Path({str(tmp_path / "archive")!r})).image(add(), device.sm))
try:
    device.load(add(), compile_kernel(add(), device.sm, Form.PTX))
except DriverError as error:
    print(error.name)
"""
    environment = os.environ | {"CUDA_DISABLE_PTX_JIT": "1", "CUDA_CACHE_PATH": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "CUDA_ERROR_JIT_COMPILATION_DISABLED"), done.stderr
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix] == []
    assert Archive.open(tmp_path / "archive").entries
