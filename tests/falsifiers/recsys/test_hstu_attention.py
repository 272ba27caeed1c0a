"""Properties of HSTU attention that its claims do not test, such as code for an absent GPU, and refusals."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as HopperDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from falsifiers.recsys.reference import hstu_attention as hstu_attention_module
from falsifiers.recsys.reference import hstu_hopper, hstu_kernels
from falsifiers.recsys.reference.hstu_attention import HstuMask, hstu_attention, passes_for
from falsifiers.recsys.reference.hstu_plan import Blocks, Plan

POINTERS = ("q", "k", "v", "do", "out", "dk", "dv")
MASK = {
    "causal": True,
    "has_targets": True,
    "has_contextuals": True,
    "has_window": True,
    "has_full": True,
    "merged": False,
}
CAUSAL = {
    "causal": True,
    "has_targets": False,
    "has_contextuals": False,
    "has_window": False,
    "has_full": False,
    "merged": True,
}
SIZES = {"fast": True, "use_tma": True, "width": 32, "value_width": 64, "block_m": 64, "block_n": 64}


def inputs(rows: int, width: int = 32, dtype: torch.dtype = torch.float16) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one head."""
    chance = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(rows, 1, width, generator=chance).to(dtype) for _ in range(3))
    return q, k, v


@pytest.mark.parametrize(
    ("kernel", "rest"),
    [
        ("over_keys", {**MASK, "gradient": False, "pad": 4}),
        ("over_rows", {**MASK, "pad": 0}),
        ("over_keys", {**CAUSAL, "gradient": True, "pad": 0}),
        ("hopper_keys", {"gradient": False, "registers": 240}),
        ("hopper_keys", {"gradient": True, "registers": 240}),
        ("hopper_rows", {"registers": 240}),
    ],
)
def test_the_kernels_compile_for_hopper(kernel: str, rest: dict[str, int]) -> None:
    """With all masks and with one, the code has tensor cores, bulk loads and one tanh, and uses no local memory."""
    in_gluon = kernel.startswith("hopper")
    function = getattr(hstu_hopper if in_gluon else hstu_kernels, kernel)
    constants: dict[str, Any] = {**SIZES, "stages": 2, **rest}
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    types = {}
    for name in function.arg_names:
        width = SIZES["value_width"] if name in ("v_tma", "do_tma") and not in_gluon else SIZES["width"]
        layout = f",{gl.NVMMASharedLayout(2 * width, 16, 3)!r}" if in_gluon else ""
        types[name] = (
            "constexpr" if name in constants
            else f"tensordesc<bf16[1, 64, {width}]{layout}>" if name.endswith("_tma")
            else "*bf16" if name in POINTERS
            else "*i64" if name in ("offsets", "targets", "contextuals")
            else "fp32" if name.endswith(("scale", "alpha"))
            else "i32"
        )  # fmt: skip
    source = (GluonASTSource if in_gluon else ASTSource)(function, types, constants)
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]
    assert all(word in ptx for word in ("wgmma.mma_async", "cp.async.bulk.tensor", "tanh.approx"))
    assert "ld.local" not in ptx


def test_a_plan_changes_no_value_by_more_than_rounding() -> None:
    """The blocks fit no length: some are larger and some are smaller than it."""
    q, k, v = inputs(50)
    offsets, mask = torch.tensor([0, 39, 39, 50]), HstuMask(num_targets=torch.tensor([5, 0, 2]), target_group_size=2)
    small, large = Blocks(16, 16, 4, 1, tma=False), Blocks(64, 32, 4, 1, tma=False)
    first, second = (
        hstu_attention(q, k, v, offsets, 64, alpha=0.2, mask=mask, plan=Plan(of, of, of)) for of in (small, large)
    )
    assert torch.allclose(first, second, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("merged", [False, True])
def test_a_bad_number_in_one_sequence_stays_there(merged: bool) -> None:
    """Blocks reach into the next sequence, but its numbers have no effect."""
    blocks, offsets, parts = Blocks(16, 16, 4, 1, merged=merged, together=2), torch.tensor([0, 17, 33]), []
    for spoilt in (0.0, float("nan")):
        leaves = inputs(33)
        for leaf in leaves:
            leaf[17:] += spoilt
            leaf.requires_grad_()
        out = hstu_attention(*leaves, offsets, 17, alpha=1.0, plan=Plan(blocks, blocks, blocks))
        parts.append([tensor[:17] for tensor in (out, *torch.autograd.grad(out, leaves, leaves[2].detach()))])
    assert all(torch.equal(part, other) for part, other in zip(*parts, strict=True))


class Recorder:
    """A kernel that records its arguments by their names."""

    def __init__(self, names: list[str]) -> None:
        self.arg_names = names
        self.launched: list[dict[str, Any]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        """Return the launcher: first Triton's, then that of the compiled kernel, which takes no names."""

        def launch(*arguments: Any, num_warps: int = 0, **constants: Any) -> Recorder:
            self.launched.append({**dict(zip(self.arg_names, arguments, strict=False)), **constants, "grid": grid[0]})
            return self

        return launch


@pytest.mark.parametrize("names", [("over_keys", "over_rows"), ("hopper_keys", "hopper_rows")])
def test_a_second_launch_gives_a_compiled_kernel_what_the_first_gave_to_triton(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arguments are the addresses of the tensors, the same numbers, and the constants in the kernel's order."""
    kernels = [Recorder(getattr(hstu_attention_module, name).arg_names) for name in names]
    for name, kernel in zip(names, kernels, strict=True):
        monkeypatch.setattr(hstu_attention_module, name, kernel)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)
    monkeypatch.setattr(torch.cuda, "device_of", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda: None))
    q, k, v = inputs(16, dtype=torch.bfloat16)
    offsets, mask, blocks = torch.tensor([0, 16]), HstuMask(num_targets=torch.tensor([3])), Blocks(16, 16, 4, 1)
    if names[0] == "hopper_keys":
        mask, blocks = HstuMask(), blocks._replace(hopper=(2, 1))
    plan = Plan(blocks, blocks, blocks)
    passes = passes_for(q, k, v, offsets, 16, alpha=0.5, mask=mask, plan=plan)
    for _ in range(2):
        passes.forward(q, k, v, offsets, mask)
        passes.backward(v, q, k, v, offsets, mask)
    fresh = {"out", "dk", "dv"}
    for kernel in kernels:
        half = len(kernel.launched) // 2
        assert half
        for first, second in zip(kernel.launched[:half], kernel.launched[half:], strict=True):
            assert first.keys() == second.keys() == {*kernel.arg_names, "grid"}
            for name in first.keys() - fresh:
                given, then = first[name], second[name]
                if isinstance(given, (TensorDescriptor, HopperDescriptor)):
                    assert (given.base, given.shape, given.strides) == (then.base, then.shape, then.strides)
                else:
                    assert (given.data_ptr() if isinstance(given, Tensor) else given) == then


def test_lengths_and_counts_may_have_gaps_between_them() -> None:
    """They may be, for example, every second number of a tensor."""
    q, k, v = inputs(20)
    offsets, targets = torch.tensor([[0, 7], [9, 7], [20, 7]])[:, 0], torch.tensor([[2, 7], [3, 7]])[:, 0]
    together = [tensor.contiguous() for tensor in (offsets, targets)]
    with_gaps, without = (
        hstu_attention(q, k, v, actual, 20, alpha=1.0, mask=HstuMask(num_targets=expected))
        for actual, expected in ((offsets, targets), together)
    )
    assert torch.equal(with_gaps, without)


def test_lengths_are_read_when_a_kernel_runs() -> None:
    """A CUDA graph replays launches with other numbers at the same addresses."""
    q, k, v = inputs(20)
    offsets = torch.tensor([0, 9, 20])
    passes = passes_for(q, k, v, offsets, 20, alpha=1.0)
    passes.forward(q, k, v, offsets, HstuMask())
    offsets.copy_(torch.tensor([0, 4, 20]))
    again = passes.forward(q, k, v, offsets, HstuMask())
    assert torch.equal(again, hstu_attention(q, k, v, torch.tensor([0, 4, 20]), 20, alpha=1.0))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("width", [64, 128])
def test_a_graph_replays_both_passes_for_other_lengths(width: int) -> None:
    """The bits are the same as with single launches."""
    leaves = tuple(input_.bfloat16().cuda().requires_grad_() for input_ in inputs(700, width))
    above = torch.randn_like(leaves[2])
    offsets = torch.tensor([0, 300, 700]).cuda()

    def step() -> tuple[Tensor, ...]:
        out = hstu_attention(*leaves, offsets, 512, alpha=0.1)
        return (out, *torch.autograd.grad(out, leaves, above))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        replayed = step()
    for middle in (300, 413, 512):
        offsets[1] = middle
        graph.replay()
        assert all(torch.equal(actual, expected) for actual, expected in zip(replayed, step(), strict=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": torch.zeros(4, 1, 48)}, "are"),
        ({"q": torch.zeros(4, 1, 32, dtype=torch.float32)}, "bfloat16 or float16"),
        ({"offsets": torch.zeros(1, 2)}, "batch"),
        ({"mask": HstuMask(num_targets=torch.tensor([1, 2, 3]))}, "num_targets"),
        ({"mask": HstuMask(target_group_size=0)}, "target_group_size"),
        ({"mask": HstuMask(num_contextuals=torch.tensor([[1]]))}, "num_contextuals"),
        ({"scaling_seqlen": 0}, "scaling_seqlen"),
    ],
)
def test_what_is_not_supported_is_refused(change: dict[str, Any], words: str) -> None:
    """The refusal comes before a kernel runs, so that forward and backward agree."""
    q, k, v = inputs(4)
    given: dict[str, Any] = {"q": q, "k": k, "v": v, "offsets": torch.tensor([0, 4]), "max_seqlen": 4, "alpha": 1.0}
    with pytest.raises(ValueError, match=words):
        hstu_attention(**{**given, **change})
