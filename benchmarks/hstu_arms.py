"""The arms of `benchmarks.hstu`: our attention and NVIDIA's, on random inputs, launch by launch or in a CUDA graph."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from falsifiers.recsys.reference.hstu_attention import HstuMask, passes_for
from falsifiers.recsys.reference.hstu_plan import Plan
from harness.authoring.timing import Timing

CALLS = 10
"""In a queue, so that launches are hidden behind kernels where they can be."""

Arms = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Inputs:
    """Random inputs of a shape in bfloat16; scores have a standard deviation of about 1."""

    longest: int
    lengths: list[int]
    offsets: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    grad_output: Tensor

    @staticmethod
    def draw(shape: str, device: str, rows: int | None = None) -> Inputs:
        """Draw the inputs of a shape; with `rows`, all sequences are that short, and the grid is that of the shape."""
        batch, longest, heads, width = (int(size) for size in shape.rstrip("j").split("x"))
        generator = torch.Generator().manual_seed(0)
        lengths = [longest] * batch
        if shape.endswith("j"):
            lengths = torch.randint(longest // 8, longest + 1, (batch,), generator=generator).tolist()
        if rows:
            lengths = [rows] * batch
        offsets = torch.tensor([0, *lengths]).cumsum(0).to(device)
        chance = torch.Generator(device).manual_seed(0)
        q, k, v, grad_output = (
            torch.randn(sum(lengths), heads, width, generator=chance, device=device).bfloat16() for _ in range(4)
        )
        return Inputs(
            longest, lengths, offsets, q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), grad_output
        )

    @property
    def alpha(self) -> float:
        """The factor of the scores."""
        return float(self.q.shape[2] ** -0.5)

    @property
    def operations(self) -> float:
        """Of the forward pass, with half of the mask; the backward pass has 2.5 times as many."""
        return sum(2.0 * length**2 * self.q.shape[1] * self.q.shape[2] * 2.0 for length in self.lengths) / 2.0


def call_of(inputs: Inputs, kernel: str, plan: Plan) -> Callable[[], object]:
    """Return a call of the forward or the backward pass, without autograd."""
    tensors, mask = (inputs.q.detach(), inputs.k.detach(), inputs.v.detach(), inputs.offsets), HstuMask()
    passes = passes_for(*tensors, inputs.longest, alpha=inputs.alpha, mask=mask, plan=plan)
    if kernel == "out":
        return lambda: passes.forward(*tensors, mask)
    return lambda: passes.backward(inputs.grad_output, *tensors, mask)


def their_kernels(inputs: Inputs, module: ModuleType) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return their forward and backward pass without autograd."""
    tensors = [tensor.detach() for tensor in (inputs.q, inputs.k, inputs.v)]
    rest = (inputs.offsets, None, 0, 0, None, False, inputs.longest)

    def forwards() -> object:
        return module.triton_hstu_attention_fwd(inputs.longest, inputs.alpha, *tensors, *rest)

    def backwards() -> object:
        empty = [torch.empty_like(tensor) for tensor in tensors]
        numbers = (inputs.offsets, None, inputs.longest, inputs.alpha, 0, 0, None, False, inputs.longest)
        return module.triton_hstu_attention_bwd(inputs.grad_output, *tensors, *empty, *numbers)

    return forwards, backwards


def load(folder: Path) -> ModuleType:
    """Load NVIDIA's module from a checkout."""
    name = "nvidia_triton_hstu_attention"
    if name not in sys.modules:
        sys.path.insert(0, str(folder))
        path = folder / "hstu" / "ops" / "triton_ops" / "triton_hstu_attention.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def gradients_of(out: Tensor, leaves: tuple[Tensor, ...], grad_output: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    """Return a backward pass that can be run again."""
    return lambda: torch.autograd.grad(out, leaves, grad_output, retain_graph=True)


def queue(arm: Callable[[], object]) -> Callable[[], object]:
    """Return several calls."""

    def calls() -> None:
        for _ in range(CALLS):
            arm()

    return calls


def recorded(arm: Callable[[], object]) -> Callable[[], object]:
    """Return several calls as a CUDA graph, which the host launches at once."""
    if not torch.cuda.is_available():
        return queue(arm)
    arm()
    wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            arm()
    return graph.replay


def mean(timing: Timing, name: str) -> float:
    """Return the seconds of a call, without the largest and smallest tenth of the rounds."""
    seconds = sorted(timing.seconds[name])
    cut = len(seconds) // 10
    kept = seconds[cut : len(seconds) - cut]
    return sum(kept) / len(kept) / CALLS


def wait() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
