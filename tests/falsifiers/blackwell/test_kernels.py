"""The text of our CUDA kernels, run on the CPU, agrees with the formulas in float64.

Keys and compilation are tested too.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.kernels import catalogue
from falsifiers.blackwell.reference.kernels.signature import signature
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.ptx_backend import PtxBackend
from falsifiers.blackwell.reference.shapes import SHAPES, BlockShape
from falsifiers.blackwell.reference.torch_backend import TorchBackend

TINY = SHAPES["qwen2-tiny"]
FORMULAS = TorchBackend()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, expected: Tensor, tolerance: float = 2e-6) -> None:
    """Compare within this share of the largest value.

    float32 rounds at 6e-8, and sums here have a few hundred terms.
    """
    scale = max(expected.abs().max().item(), 1e-30)
    torch.testing.assert_close(found.double() / scale, expected / scale, rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (65, 63, 17), (64, 64, 16), (3, 130, 40)])
def test_matmul(on_the_cpu: PtxBackend, transpose_a: bool, transpose_b: bool, m: int, n: int, k: int) -> None:
    a = drawn(2, 3, k, m) if transpose_a else drawn(2, 3, m, k)
    b = drawn(2, 3, n, k, seed=1) if transpose_b else drawn(2, 3, k, n, seed=1)
    found = on_the_cpu.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    close(found, FORMULAS.matmul(a.double(), b.double(), transpose_a=transpose_a, transpose_b=transpose_b))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("tokens", "size_in", "size_out"), [(5, 20, 30), (70, 64, 2100)])
def test_a_projection_and_its_backward(
    on_the_cpu: PtxBackend, bias: bool, tokens: int, size_in: int, size_out: int
) -> None:
    """2,100 features use the large tile, and are no multiple of it."""
    x, weight, gradient = drawn(tokens, size_in), drawn(size_out, size_in, seed=1), drawn(tokens, size_out, seed=2)
    added = drawn(size_out, seed=3) if bias else None
    close(
        on_the_cpu.project("gate", x, weight, added),
        FORMULAS.project("gate", x.double(), weight.double(), added.double() if added is not None else None),
    )
    found = on_the_cpu.project_backward("gate", x, weight, gradient, bias=bias)
    expected = FORMULAS.project_backward("gate", x.double(), weight.double(), gradient.double(), bias=bias)
    close(found.x, expected.x)
    close(found.weight, expected.weight)
    if expected.bias is None:
        assert found.bias is None
    else:
        assert found.bias is not None
        close(found.bias, expected.bias)


@pytest.mark.parametrize("sequence", [1, 9, 300])
def test_causal_softmax_and_its_backward(on_the_cpu: PtxBackend, sequence: int) -> None:
    """300 keys exceed the threads of a block. Scores of 80 overflow unless the maximum is subtracted."""
    scores = 80 * drawn(2, 2 * sequence, sequence)
    found = on_the_cpu.causal_softmax(scores, 0.5)
    expected = FORMULAS.causal_softmax(scores.double(), 0.5)
    close(found, expected, 1e-5)  # exp(x) has the rounding of x, up to 120 here, as a relative error
    gradient = drawn(*scores.shape, seed=1)
    close(
        on_the_cpu.causal_softmax_backward(expected.float(), gradient, 0.5),
        FORMULAS.causal_softmax_backward(expected.float().double(), gradient.double(), 0.5),
    )


@pytest.mark.parametrize(("tokens", "hidden", "eps"), [(3, 48, 1e-3), (70, 300, 1e-6)])
def test_rms_norm_and_its_backward(on_the_cpu: PtxBackend, tokens: int, hidden: int, eps: float) -> None:
    x, weight, gradient = 0.01 * drawn(tokens, hidden), drawn(hidden, seed=1), drawn(tokens, hidden, seed=2)
    close(on_the_cpu.rms_norm(x, weight, eps), FORMULAS.rms_norm(x.double(), weight.double(), eps))
    found = on_the_cpu.rms_norm_backward(x, weight, gradient, eps)
    expected = FORMULAS.rms_norm_backward(x.double(), weight.double(), gradient.double(), eps)
    for ours, theirs in zip(found, expected, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize(("sequence", "head_dim"), [(1, 2), (40, 8), (11, 128)])
def test_rope_and_its_backward(on_the_cpu: PtxBackend, sequence: int, head_dim: int) -> None:
    x = drawn(2, 3, sequence, head_dim)
    close(on_the_cpu.rope(x, 10_000.0), FORMULAS.rope(x.double(), 10_000.0))
    close(on_the_cpu.rope_backward(x, 10_000.0), FORMULAS.rope_backward(x.double(), 10_000.0))


def test_element_wise_kernels(on_the_cpu: PtxBackend) -> None:
    """A gate of -120 overflows exp. The answer is 0, not NaN."""
    gate, up, gradient = 40 * drawn(7, 111), drawn(7, 111, seed=1), drawn(7, 111, seed=2)
    close(on_the_cpu.add(up, gradient), up.double() + gradient.double())
    close(on_the_cpu.silu_gate(gate, up), FORMULAS.silu_gate(gate.double(), up.double()))
    found = on_the_cpu.silu_gate_backward(gate, up, gradient)
    expected = FORMULAS.silu_gate_backward(gate.double(), up.double(), gradient.double())
    for ours, theirs in zip(found, expected, strict=True):
        close(ours, theirs)


def test_a_whole_block_needs_no_kernel_but_those_of_its_catalogue(on_the_cpu: PtxBackend) -> None:
    """Output and gradients agree with the formulas. The used keys are exactly those that pre-warming names."""
    on_the_cpu.cache.requested.clear()
    weights, x, gradient = new_weights(TINY, 1, dtype=torch.float32), drawn(2, 9, 64), drawn(2, 9, 64, seed=1)
    exact = {name: weight.double() for name, weight in weights.items()}
    output, saved = Block(TINY, on_the_cpu).forward(x, weights)
    of_x, of_weights = Block(TINY, on_the_cpu).backward(saved, weights, gradient)
    expected, kept = Block(TINY, FORMULAS).forward(x.double(), exact)
    expected_of_x, expected_of_weights = Block(TINY, FORMULAS).backward(kept, exact, gradient.double())
    close(output, expected)
    close(of_x, expected_of_x)
    for name, found in of_weights.items():
        close(found, expected_of_weights[name], 5e-6)
    assert set(on_the_cpu.cache.requested) == {spec.key for spec in catalogue.block_kernels(TINY)}


def test_tensors_that_a_kernel_would_misread_are_refused(on_the_cpu: PtxBackend) -> None:
    with pytest.raises(TypeError, match="contiguous float32"):
        on_the_cpu.add(drawn(4, 6).T, drawn(6, 4))
    with pytest.raises(TypeError, match=r"float64"):
        on_the_cpu.add(drawn(4).double(), drawn(4))


shapes = st.builds(
    lambda group, kv_heads, half, intermediate, eps, theta: BlockShape(
        hidden=2 * half * group * kv_heads, heads=group * kv_heads, kv_heads=kv_heads, intermediate=intermediate,
        eps=eps, theta=theta,
    ),
    st.integers(1, 7), st.integers(1, 4), st.integers(1, 64), st.integers(1, 9000),
    st.floats(1e-8, 1e-2), st.floats(10.0, 1e7),
)  # fmt: skip


@given(shapes, shapes)
@example(replace(TINY, eps=1e-8), replace(TINY, eps=1.0000000000000002e-08))  # one float32
@settings(deadline=None)
def test_kernels_with_different_machine_code_have_different_keys(block_shape: BlockShape, other: BlockShape) -> None:
    by_key: dict[str, str] = {}
    for spec in (*catalogue.block_kernels(block_shape), *catalogue.block_kernels(other)):
        assert by_key.setdefault(spec.key, spec.digest) == spec.digest
        assert re.fullmatch(r"[a-z][a-z0-9_]*", spec.key)


def test_the_historical_eps_are_told_apart() -> None:
    """PMAT-698n warmed 1e-5 (0x3727c5ac), but Qwen2 has 1e-6 (0x358637bd)."""
    assert catalogue.rms_norm(896, 1e-6).key.endswith("_eps358637bd")
    assert catalogue.rms_norm(896, 1e-5).key.endswith("_eps3727c5ac")


def test_signatures_are_those_of_the_texts() -> None:
    names = {kind.__name__ for spec in catalogue.block_kernels(TINY) for kind in signature(spec)}
    assert names == {"c_void_p", "c_int", "c_long", "c_float"}
    assert [kind.__name__ for kind in signature(catalogue.causal_softmax())] == [
        "c_void_p",
        "c_void_p",
        "c_float",
        "c_int",
    ]


@pytest.mark.parametrize("sm", [75, 89, 90, 100, 120, 121])
def test_nvrtc_compiles_for_every_target_without_a_gpu(sm: int) -> None:
    """These kernels have barriers, double precision and many registers.

    The tests of the archive have the other kernels.
    """
    pytest.importorskip("cuda.bindings")
    from falsifiers.blackwell.reference.kernels.nvrtc import compile_kernel
    from harness.tools.inspect.device_code import Form, scan

    for spec in (catalogue.project("gate", 896, 4864, bias=False), catalogue.rope(64, 1e6)):
        image = compile_kernel(spec, sm)
        ((code,), notes, _) = scan(image.data)
        assert (code.form, code.sm, code.kernels, notes) == (Form.MACHINE_CODE, sm, (spec.key,), ())
        assert compile_kernel(spec, sm) == image


def test_a_compiler_that_does_not_know_a_target_says_so() -> None:
    pytest.importorskip("cuda.bindings")
    from falsifiers.blackwell.reference.kernels.nvrtc import CompilationFailed, compile_kernel

    with pytest.raises(CompilationFailed, match=r"add for sm_999: NVRTC [\d.]+"):
        compile_kernel(catalogue.add(), 999)
    with pytest.raises(CompilationFailed, match="is undefined"):
        compile_kernel(replace(catalogue.rms_norm(64, 1e-6), constants=(("HIDDEN", 64),)), 90)


def test_a_barrier_that_not_all_threads_reach_is_reported(
    on_the_cpu: PtxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU this has undefined behaviour, which often stays unnoticed."""
    text = 'extern "C" __global__ void KERNEL(float* x) { if (threadIdx.x) __syncthreads(); }'
    monkeypatch.setattr(KernelSpec, "text", property(lambda self: text))
    with pytest.raises(RuntimeError, match="barrier"):
        on_the_cpu.cache.launch(KernelSpec("diverges", "diverges"), (1, 1, 1), 2, drawn(1))


def test_the_catalogue_needs_neither_torch_nor_cuda() -> None:
    """A machine that only builds archives has neither torch nor CUDA."""
    code = "import sys, falsifiers.blackwell.archive; sys.exit(bool({'torch', 'cuda.bindings'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
