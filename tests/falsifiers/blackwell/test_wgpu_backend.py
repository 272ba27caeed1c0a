"""Every operation in WGSL agrees with its formula in float64, over ragged shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.blackwell.reference.backend import ProjectionGradients
from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.shapes import SHAPES, BlockShape
from falsifiers.blackwell.reference.torch_backend import TorchBackend
from tests.falsifiers.blackwell.adapters import any_backend

wgpu = pytest.importorskip("wgpu", reason="the package wgpu is not installed (extra wgpu)")

from falsifiers.blackwell.reference import wgpu_gemm  # noqa: E402
from falsifiers.blackwell.reference.wgpu_backend import WgpuBackend  # noqa: E402
from falsifiers.blackwell.reference.wgpu_device import Device, DeviceLimit, NoAdapter, choose_adapter  # noqa: E402
from falsifiers.blackwell.reference.wgpu_gemm import Product, Tile  # noqa: E402
from falsifiers.blackwell.reference.wgpu_tensor import WgpuTensor  # noqa: E402

FORMULAS = TorchBackend()
SIZES = st.integers(1, 40)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def backend() -> WgpuBackend:
    """One device for the module, because opening it takes longer than most tests."""
    return any_backend()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal float32."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def alike(found: object, expected: object, tolerance: float = 2e-5) -> None:
    """Compare tensors, or tuples of them, with the float64 results."""
    if isinstance(found, Tensor):
        assert isinstance(expected, Tensor)
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    elif found is None:
        assert expected is None
    else:
        for actual, other in zip(found, expected, strict=True):  # type: ignore[call-overload]
            alike(actual, other, tolerance)


@FEW
@given(SIZES, SIZES, SIZES, st.integers(1, 3), st.booleans(), st.booleans())
def test_products(
    backend: WgpuBackend, m: int, n: int, k: int, batches: int, transpose_a: bool, transpose_b: bool
) -> None:
    a = drawn(batches, *((k, m) if transpose_a else (m, k)))
    b = drawn(batches, *((n, k) if transpose_b else (k, n)), seed=1)
    found = backend.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    alike(found, FORMULAS.matmul(a.double(), b.double(), transpose_a=transpose_a, transpose_b=transpose_b))


@FEW
@given(SIZES, SIZES, SIZES, st.booleans())
def test_projections(backend: WgpuBackend, tokens: int, size_in: int, size_out: int, bias: bool) -> None:
    x, weight, gradient = drawn(tokens, size_in), drawn(size_out, size_in, seed=1), drawn(tokens, size_out, seed=2)
    added = drawn(size_out, seed=3) if bias else None
    alike(
        backend.project("q", x, weight, added),
        FORMULAS.project("q", x.double(), weight.double(), None if added is None else added.double()),
    )
    found = backend.project_backward("q", x, weight, gradient, bias=bias)
    assert isinstance(found, ProjectionGradients)
    alike(found, FORMULAS.project_backward("q", x.double(), weight.double(), gradient.double(), bias=bias))


@FEW
@given(SIZES, st.integers(1, 300), st.sampled_from([1e-6, 1e-2]))
def test_norms(backend: WgpuBackend, rows: int, columns: int, eps: float) -> None:
    x, weight, gradient = drawn(rows, columns), drawn(columns, seed=1), drawn(rows, columns, seed=2)
    alike(backend.rms_norm(x, weight, eps), FORMULAS.rms_norm(x.double(), weight.double(), eps))
    alike(
        backend.rms_norm_backward(x, weight, gradient, eps),
        FORMULAS.rms_norm_backward(x.double(), weight.double(), gradient.double(), eps),
        tolerance=2e-4 if columns == 1 else 2e-5,  # one column is its own mean: a difference of equals is left
    )


@FEW
@given(st.integers(1, 3), st.integers(1, 3), SIZES, st.integers(1, 20), st.sampled_from([100.0, 1e6]))
def test_rotations(backend: WgpuBackend, batch: int, heads: int, sequence: int, half: int, theta: float) -> None:
    x = drawn(batch, heads, sequence, 2 * half)
    alike(backend.rope(x, theta), FORMULAS.rope(x.double(), theta))
    alike(backend.rope_backward(x, theta), FORMULAS.rope_backward(x.double(), theta))


@FEW
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 200), st.sampled_from([0.125, 1.0, 30.0]))
def test_softmax(backend: WgpuBackend, batch: int, group: int, sequence: int, scale: float) -> None:
    scores = drawn(batch, group * sequence, sequence)
    probabilities = FORMULAS.causal_softmax(scores.double(), scale)
    alike(backend.causal_softmax(scores, scale), probabilities, tolerance=1e-4 if scale > 1 else 2e-5)
    gradient = drawn(*scores.shape, seed=1)
    alike(
        backend.causal_softmax_backward(probabilities.float(), gradient, scale),
        FORMULAS.causal_softmax_backward(probabilities, gradient.double(), scale),
        tolerance=2e-5 * max(1.0, scale),
    )


@FEW
@given(SIZES, SIZES)
def test_single_elements(backend: WgpuBackend, rows: int, columns: int) -> None:
    a, b, gradient = (10.0 * drawn(rows, columns, seed=seed) for seed in range(3))
    alike(backend.add(a, b), a.double() + b.double())
    alike(backend.silu_gate(a, b), FORMULAS.silu_gate(a.double(), b.double()), tolerance=1e-4)
    alike(
        backend.silu_gate_backward(a, b, gradient),
        FORMULAS.silu_gate_backward(a.double(), b.double(), gradient.double()),
        tolerance=1e-4,
    )


def test_extreme_gates_saturate(backend: WgpuBackend) -> None:
    """exp(1000) is infinite, but its reciprocal is still the sigmoid."""
    gate = torch.tensor([[-1000.0, -100.0, 100.0, 1000.0]])
    alike(backend.silu_gate(gate, torch.ones_like(gate)), gate.double().clamp(min=0.0), tolerance=1e-6)


@pytest.mark.parametrize(
    "shape", [SHAPES["qwen2-tiny"], BlockShape(hidden=48, heads=6, kv_heads=2, intermediate=20, eps=1e-3, theta=100.0)]
)
def test_a_block_stays_on_the_adapter(backend: WgpuBackend, shape: BlockShape) -> None:
    """Output and all gradients are computed without a fetch before the end and a transfer after the beginning."""
    weights = new_weights(shape, 1, dtype=torch.float64)
    x, gradient = drawn(2, 13, shape.hidden), drawn(2, 13, shape.hidden, seed=1)
    expected, saved = Block(shape, FORMULAS).forward(x.double(), weights)
    expected_x, expected_weights = Block(shape, FORMULAS).backward(saved, weights, gradient.double())

    there = {name: backend.upload(weight.float()) for name, weight in weights.items()}
    block = Block(shape, backend)
    arrived = backend.upload(x), backend.upload(gradient)
    backend.rope(backend.upload(torch.zeros(1, 1, 13, shape.head_dim)), shape.theta)  # the angles are sent once
    sent, fetched = backend.device.uploaded_bytes, backend.device.downloaded_bytes
    output, kept = block.forward(arrived[0], there)
    of_x, of_weights = block.backward(kept, there, arrived[1])
    assert (backend.device.uploaded_bytes, backend.device.downloaded_bytes) == (sent, fetched)

    alike(output.cpu(), expected)
    alike(of_x.cpu(), expected_x)
    assert of_weights.keys() == expected_weights.keys()
    for name, found in of_weights.items():
        alike(found.cpu(), expected_weights[name])


@pytest.mark.parametrize("tile", [wgpu_gemm.LARGE, wgpu_gemm.NARROW, wgpu_gemm.SMALL, Tile(4, 8, 8)], ids=str)
@pytest.mark.parametrize("size", [(256, 128, 32), (130, 67, 19), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_every_tile_that_a_gpu_would_use(
    backend: WgpuBackend,
    monkeypatch: pytest.MonkeyPatch,
    tile: Tile,
    size: tuple[int, int, int],
    transposed: tuple[bool, bool],
) -> None:
    """Both pipelines run, for even and for ragged tiles, although a CPU would choose others."""
    monkeypatch.setattr(wgpu_gemm, "choose_tile", lambda product, device: tile)
    (m, n, k), (transpose_a, transpose_b) = size, transposed
    a = drawn(2, *((k, m) if transpose_a else (m, k)))
    b = drawn(2, *((n, k) if transpose_b else (k, n)), seed=1)
    found = backend.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    alike(found, FORMULAS.matmul(a.double(), b.double(), transpose_a=transpose_a, transpose_b=transpose_b))


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("size", [(64, 64, 2048), (9, 17, 1040)], ids=str)
def test_a_long_product_is_cut_along_k(
    backend: WgpuBackend, size: tuple[int, int, int], transposed: tuple[bool, bool]
) -> None:
    (m, n, k), (transpose_a, transpose_b) = size, transposed
    product = Product(m, n, k, 1, transpose_a, transpose_b)
    assert wgpu_gemm.splits(product, wgpu_gemm.choose_tile(product, backend.device)) > 1
    a, b = drawn(*((k, m) if transpose_a else (m, k))), drawn(*((n, k) if transpose_b else (k, n)), seed=1)
    found = backend.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    expected = FORMULAS.matmul(a.double(), b.double(), transpose_a=transpose_a, transpose_b=transpose_b)
    alike(found, expected, tolerance=2e-4)
    of_a_batch = backend.matmul(a[None], b[None], transpose_a=transpose_a, transpose_b=transpose_b)
    assert of_a_batch.shape == (1, m, n)


@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 3))
def test_parts_along_k_are_whole_tiles(m: int, n: int, k: int, batches: int) -> None:
    product = Product(m, n, k, batches, False, False)
    for tile in (wgpu_gemm.LARGE, wgpu_gemm.NARROW, wgpu_gemm.SMALL, wgpu_gemm.TINY):
        parts = wgpu_gemm.splits(product, tile)
        assert parts >= 1
        assert parts == 1 or (k % (parts * tile.depth) == 0 and batches == 1)


def test_what_cannot_be_bound_at_once_is_worked_on_in_parts() -> None:
    """On a device that binds 4 KiB, rows, elements, matrices and sums are divided, and the results are the same."""
    narrow = any_backend(binding_bytes=4096)
    x, gradient, weight = drawn(100, 64), drawn(100, 64, seed=1), drawn(64, seed=2)
    alike(narrow.add(x, gradient), x.double() + gradient.double())
    alike(
        narrow.rms_norm_backward(x, weight, gradient, 1e-6),
        FORMULAS.rms_norm_backward(x.double(), weight.double(), gradient.double(), 1e-6),
    )
    heads = drawn(3, 5, 24, 16)
    alike(narrow.rope(heads, 1e6), FORMULAS.rope(heads.double(), 1e6))
    scores = drawn(4, 3 * 24, 24)
    alike(narrow.causal_softmax(scores, 0.5), FORMULAS.causal_softmax(scores.double(), 0.5))
    a, b = drawn(20, 16, 24), drawn(20, 24, 16, seed=1)
    alike(narrow.matmul(a, b), FORMULAS.matmul(a.double(), b.double()))
    with pytest.raises(DeviceLimit, match="4096"):
        narrow.matmul(drawn(40, 40), drawn(40, 40))


def test_more_matrices_than_a_grid_is_deep(backend: WgpuBackend) -> None:
    """WebGPU has 65,535 workgroups in each dimension."""
    a, b = drawn(70_000, 1, 2), drawn(70_000, 2, 1, seed=1)
    alike(backend.matmul(a, b), FORMULAS.matmul(a.double(), b.double()))


def test_more_rows_than_a_grid_is_wide(backend: WgpuBackend) -> None:
    x, weight = drawn(70_000, 3), drawn(3, seed=1)
    alike(backend.rms_norm(x, weight, 1e-6), FORMULAS.rms_norm(x.double(), weight.double(), 1e-6))


def test_a_pipeline_is_compiled_once_for_its_key() -> None:
    fresh = any_backend()
    for size in (32, 40, 32):
        fresh.matmul(drawn(size, 32), drawn(32, 32))
    kernels = fresh.device.pipelines
    assert len(kernels) == len(set(kernels)) == 2  # ragged and even
    assert fresh.device.dispatches == 3


def test_strided_tensors_are_copied_on_the_adapter(backend: WgpuBackend) -> None:
    x = drawn(2, 3, 4, 5)
    there = backend.upload(x)
    assert torch.equal(there.transpose(1, 2).cpu(), x.transpose(1, 2))
    assert torch.equal(there.transpose(0, 3).contiguous().cpu(), x.transpose(0, 3))
    assert torch.equal(there.view(6, -1).cpu(), x.view(6, -1))
    assert "WgpuTensor((2, 3, 4, 5)" in repr(there)
    with pytest.raises(NotImplementedError, match=r"aten\.add"):
        there + there


def test_buffers_are_used_again() -> None:
    """Fifty sums need fewer than five buffers."""
    backend = any_backend()
    a = backend.upload(torch.ones(1024, 1024))
    total = a
    for _ in range(50):
        total = backend.add(total, a)
    assert torch.equal(total.cpu(), torch.full((1024, 1024), 51.0))
    assert backend.device.allocated_buffers < 5


def test_other_dtypes_and_shapes_are_refused(backend: WgpuBackend) -> None:
    with pytest.raises(TypeError, match=r"torch\.float64"):
        backend.add(torch.ones(2, dtype=torch.float64), torch.ones(2))
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        backend.matmul(torch.ones(2, 3), torch.ones(2, 3))


def test_software_is_never_taken_for_a_gpu() -> None:
    """A request for a GPU gives a GPU, or an error with a remedy."""
    kinds = {adapter.info["adapter_type"] for adapter in wgpu.gpu.enumerate_adapters_sync()}
    if kinds - {"CPU"}:
        assert choose_adapter("gpu").info["adapter_type"] != "CPU"
    else:
        with pytest.raises(NoAdapter, match="mesa-vulkan-drivers"):
            choose_adapter("gpu")
    with pytest.raises(NoAdapter, match="Voodoo 2"):
        choose_adapter("Voodoo 2")


def test_an_adapter_is_found_by_a_part_of_its_name(backend: WgpuBackend) -> None:
    assert Device(choose_adapter(backend.device.name[:6])).name == backend.device.name


def test_what_comes_back_is_where_it_came_from(backend: WgpuBackend) -> None:
    host, there = torch.ones(3), backend.upload(torch.ones(3))
    assert not isinstance(backend.add(host, there), WgpuTensor)
    assert isinstance(backend.add(there, host), WgpuTensor)
