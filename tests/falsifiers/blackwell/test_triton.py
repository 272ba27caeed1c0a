"""Triton's kernels, in its interpreter or on a GPU, agree with the formulas in float64.

Their compiled code is tested too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="Triton is not installed: pip install '.[triton]'")

from falsifiers.blackwell.reference import triton_backend
from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.reference.torch_backend import TorchBackend
from falsifiers.blackwell.reference.triton_backend import (
    TritonBackend,
    compile_elementwise,
    compile_projections,
    loaded_modules,
)
from falsifiers.blackwell.reference.triton_kernels import ADD, only_compiling

_TINY = SHAPES["qwen2-tiny"]


@given(st.integers(1, 150), st.integers(1, 150), st.integers(1, 150), st.booleans(), st.booleans())
@settings(max_examples=12, deadline=None)
def test_projection_backward_is_the_formula(
    tokens: int, size_in: int, size_out: int, bias: bool, strided: bool
) -> None:
    """The sizes are on both sides of a tile's edge, and rows have gaps between them."""
    apart = 2 if strided else 1
    x = torch.randn(tokens, size_in * apart)[:, :size_in]
    weight = torch.randn(size_out * apart, size_in)[::apart]
    gradient = torch.randn(tokens, size_out)
    found = TritonBackend().project_backward("q", x, weight, gradient, bias=bias)
    wanted = TorchBackend().project_backward("q", x.double(), weight.double(), gradient.double(), bias=bias)
    for got, right in zip(found, wanted, strict=True):
        if right is None:
            assert got is None
        else:
            torch.testing.assert_close(got.double(), right, rtol=1e-4, atol=1e-4)


@given(st.integers(1, 140), st.integers(1, 140), st.integers(1, 140), st.booleans(), st.booleans())
@settings(max_examples=12, deadline=None)
def test_products_are_torchs(rows: int, columns: int, inner: int, transpose_a: bool, transpose_b: bool) -> None:
    """Products agree in batches, and for operands transposed by their strides."""
    a = torch.randn(2, 3, *((inner, rows) if transpose_a else (rows, inner)))
    b = torch.randn(2, 3, *((columns, inner) if transpose_b else (inner, columns)))
    found = TritonBackend().matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    wanted = TorchBackend().matmul(a.double(), b.double(), transpose_a=transpose_a, transpose_b=transpose_b)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


def test_bfloat16_is_rounded_once() -> None:
    """Sums are float32's, and only the result is rounded. The interpreter rounds towards zero, hence 2^-7."""
    x, weight, gradient = (torch.randn(size).bfloat16() for size in ((40, 24), (56, 24), (40, 56)))
    found = TritonBackend().project_backward("q", x, weight, gradient, bias=True)
    wanted = TorchBackend().project_backward("q", x.double(), weight.double(), gradient.double(), bias=True)
    for got, right in zip(found, wanted, strict=True):
        assert got is not None
        assert right is not None
        torch.testing.assert_close(got.double(), right, rtol=2**-7, atol=1e-4)


def block_gradients(backend: TorchBackend, dtype: torch.dtype, device: str) -> dict[str, torch.Tensor]:
    """All gradients of a small block on this backend."""
    generator = torch.Generator().manual_seed(5)
    drawn = torch.randn(2, 2, 24, _TINY.hidden, generator=generator, dtype=torch.float64).to(device, dtype)
    weights = new_weights(_TINY, 5, dtype=dtype, device=device)
    block = Block(_TINY, backend)
    _, saved = block.forward(drawn[0], weights)
    of_x, gradients = block.backward(saved, weights, drawn[1])
    return {**gradients, "x": of_x}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_block_has_the_formulas_gradients(device: str) -> None:
    """Every kernel is at its place, the element-wise ones too."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    wanted = block_gradients(TorchBackend(), torch.float64, device)
    for name, found in block_gradients(TritonBackend(), torch.float32, device).items():
        torch.testing.assert_close(found.double(), wanted[name], rtol=1e-4, atol=1e-4)
    modules = [module.kernel for module in loaded_modules()]
    assert ("projection_backward" in modules) == (device == "cuda")


def test_layers_have_modules_of_their_own_or_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer has seven modules, as in the history of the claim.

    If all layers share, there are two: with and without a bias.
    """
    monkeypatch.setitem(triton_backend._BLOCKS, "cuda", (16, 16))  # the same number of modules, in half the time
    own, shared, others = compile_projections(_TINY, 90, 0), compile_projections(_TINY, 90), compile_elementwise(90)
    assert [len(own), len(shared), len(others)] == [7, 2, 3]
    assert all(module.size > 1000 for module in (*own, *shared, *others))


def test_launches_only_compile_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the block, a launch on CUDA goes to the compiler, also if the block raises. After the block it runs."""
    done: list[tuple[str, object]] = []

    class Compiled:
        def warmup(self, size: int, *, grid: object) -> None:
            done.append(("compiled", size))

        def __getitem__(self, grid: object) -> Callable[[int], None]:
            return lambda size: done.append(("ran", size))

    monkeypatch.setattr(ADD, "_compiled", Compiled())
    with contextlib.suppress(LookupError), only_compiling():
        ADD.launch((1,), "cuda", 7)
        raise LookupError
    ADD.launch((1,), "cuda", 8)
    assert done == [("compiled", 7), ("ran", 8)]
