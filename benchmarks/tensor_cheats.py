"""Right functions on a GPU, in torch and in Triton, and cheats that only a GPU shows."""

# ruff: noqa: E731 (short functions read better as lambdas here)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (as everybody calls it)
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["CHEATS", "HEALTHY"]

Function = Callable[..., Any]


@triton.jit
def _softmax_rows(source, target, stride, width, block: tl.constexpr, half: tl.constexpr, masked: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    there = columns < width
    x = tl.load(source + row * stride + columns, mask=there, other=-float("inf"))
    x = x if half else x.to(tl.float32)
    powers = tl.exp(x.to(tl.float32) - tl.max(x.to(tl.float32), axis=0))
    powers = powers.to(tl.float16) if half else powers
    norm = tl.sum(powers, axis=0)
    y = powers / norm
    if masked:
        tl.store(target + row * width + columns, y, mask=there)
    else:
        tl.store(target + row * width + columns, y, mask=columns < width + 1)


def _softmax(
    x: Tensor, *, strided: bool = True, half: bool = False, masked: bool = True, out: Tensor | None = None
) -> Tensor:
    if x.dtype == torch.float64:
        raise TypeError("float64 is not supported")
    x = x if x.stride(-1) == 1 or not strided else x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    if x.numel():
        block = triton.next_power_of_2(x.shape[1] + 1)
        stride = x.stride(0) if strided else x.shape[1]
        _softmax_rows[(x.shape[0],)](x, out, stride, x.shape[1], block=block, half=half, masked=masked)
    return out


class _SoftmaxWithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = _softmax(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        wide = grad.float() * y.float()
        return (wide - y.float() * wide.sum(-1, keepdim=True)).to(y.dtype)


def triton_softmax(x: Tensor) -> Tensor:
    """A softmax in Triton, a row a program, and its gradient."""
    return _SoftmaxWithGradient.apply(x)


def fused_loss(hidden: Tensor, weight: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """The fused linear cross-entropy of nanochat's claims."""
    from falsifiers.nanochat.reference.linear_cross_entropy import linear_cross_entropy

    return linear_cross_entropy(hidden, weight, targets, reduction=reduction)  # type: ignore[arg-type]


def fused_loss_reference(hidden: Tensor, weight: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """Product and cross entropy; a mean over no rows is 0."""
    losses = F.cross_entropy(hidden @ weight.T, targets, reduction="none")
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / (targets != -100).sum().clamp_min(1)}[reduction]


def hstu(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
    """HSTU attention of the recommenders' claims."""
    from falsifiers.recsys.reference.hstu_attention import HstuMask, hstu_attention

    return hstu_attention(q, k, v, offsets, 64, alpha=0.25, mask=HstuMask(True, None, 1, None, 0, 0))


def hstu_reference(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
    """silu of the scores over 64, causal, a sequence at a time."""
    parts = []
    for first, last in zip(offsets.tolist(), offsets.tolist()[1:], strict=False):
        queries, keys, values = (each[first:last].transpose(0, 1) for each in (q, k, v))
        scores = F.silu(0.25 * (queries @ keys.transpose(1, 2))) / 64
        parts.append((scores.tril() @ values).transpose(0, 1))
    return torch.cat(parts) if parts else v


def hstu_example(draw: Any) -> Any:
    """Three sequences, two heads of 32 and values of 64."""
    rows = draw.size("rows", least=9, most=120)
    offsets = torch.tensor([0, rows // 3, rows // 2, rows])
    q, k = draw.tensor(rows, 2, 32), draw.tensor(rows, 2, 32)
    return q, k, draw.tensor(rows, 2, 64), offsets.to(q.device)


def head_example(draw: Any) -> Any:
    """Hidden states, a head and targets."""
    rows, width = draw.size("rows"), draw.size("width", most=256)
    vocabulary = draw.size("vocabulary", least=2)
    hidden, weight = draw.tensor(rows, width), draw.tensor(vocabulary, width, scale=0.25)
    return (
        hidden,
        weight,
        draw.index(rows, below=vocabulary, also=(-100,)),
        draw.choice("reduction", "mean", "sum", "none"),
    )


def rows_example(draw: Any) -> Any:
    """[rows, width]."""
    return draw.tensor(draw.size("rows"), draw.size("width"))


def pair_example(draw: Any) -> Any:
    """Twice [rows, width]."""
    rows, width = draw.size("rows"), draw.size("width")
    return draw.tensor(rows, width), draw.tensor(rows, width)


def product_example(draw: Any) -> Any:
    """[rows, inner] and [inner, columns]."""
    rows, inner, columns = draw.size("rows"), draw.size("inner"), draw.size("columns")
    return draw.tensor(rows, inner), draw.tensor(inner, columns)


def heads_example(draw: Any) -> Any:
    """Queries, keys and values of one head each."""
    batch, long, short = draw.size("batch", most=8), draw.size("queries"), draw.size("keys", least=2)
    width = draw.size("width", multiple_of=8, most=64)
    return draw.tensor(batch, 2, long, width), draw.tensor(batch, 2, short, width), draw.tensor(batch, 2, short, width)


softmax = lambda x: torch.softmax(x, -1)
silu_mul = lambda gate, up: F.silu(gate) * up
product = lambda a, b: a @ b
attention = lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v

HEALTHY: dict[str, tuple[Function, Function, Function, dict[str, Any]]] = {
    "torch softmax": (softmax, softmax, rows_example, {"waits": False}),
    "torch silu_mul": (silu_mul, lambda gate, up: gate * torch.sigmoid(gate) * up, pair_example, {"waits": False}),
    "torch matmul": (product, product, product_example, {"waits": False}),
    "torch attention": (
        F.scaled_dot_product_attention,
        attention,
        heads_example,
        {"deterministic": False, "slack": 16.0},
    ),
    "torch cross_entropy": (F.cross_entropy, F.cross_entropy, lambda draw: _logits(draw), {}),
    "triton softmax": (triton_softmax, softmax, rows_example, {"waits": False}),
    "nanochat fused loss": (fused_loss, fused_loss_reference, head_example, {"deterministic": False}),
    "recsys hstu": (hstu, hstu_reference, hstu_example, {"dtypes": ("bfloat16", "float16"), "deterministic": False}),
}


def _logits(draw: Any) -> Any:
    rows, vocabulary = draw.size("rows"), draw.size("vocabulary", least=2)
    return draw.tensor(rows, vocabulary), draw.index(rows, below=vocabulary, also=(-100,))


def default_stream() -> Function:
    """Work runs on the default stream."""

    def function(x: Tensor) -> Tensor:
        with torch.cuda.stream(torch.cuda.default_stream()):
            return triton_softmax(x)

    return function


def own_stream_without_waiting() -> Function:
    """Work runs on a stream of its own, without a wait."""
    streams: list[Any] = []

    def function(x: Tensor) -> Tensor:
        streams.append(torch.cuda.Stream()) if not streams else None
        with torch.cuda.stream(streams[0]):
            return triton_softmax(x)

    return function


def waits_for_the_device() -> Function:
    """It synchronises, though it is declared not to wait."""

    def function(x: Tensor) -> Tensor:
        result = triton_softmax(x)
        torch.cuda.synchronize()
        return result

    return function


def reads_a_value() -> Function:
    """It reads one value on the host."""
    return lambda x: triton_softmax(x if x.numel() and float(x.detach().flatten()[0]) > -1e30 else x.clone())


def graph_of_first_inputs() -> Function:
    """The first call with a shape is captured, and later ones replay it without copying their inputs."""
    graphs: dict[Any, Any] = {}

    def function(x: Tensor) -> Tensor:
        if x.requires_grad or torch.cuda.is_current_stream_capturing():
            return triton_softmax(x)
        key = (x.shape, x.dtype)
        if key not in graphs:
            fixed = x.clone()
            triton_softmax(fixed)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = triton_softmax(fixed)
            graphs[key] = graph, fixed, out
        graph, _, out = graphs[key]
        graph.replay()
        return out.clone()

    return function


def static_output() -> Function:
    """The output of a shape is one buffer, as in CUDA graphs."""
    kept: dict[Any, Tensor] = {}

    def function(x: Tensor) -> Tensor:
        if x.requires_grad:
            return triton_softmax(x)
        return _softmax(
            x, out=kept.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype, device=x.device))
        )

    return function


def tf32_products() -> Function:
    """float32 products round their factors to TF32."""

    def function(a: Tensor, b: Tensor) -> Tensor:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return a @ b
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    return function


def tf32_left_on() -> Function:
    """TF32 is switched on for all that comes later."""

    def function(x: Tensor) -> Tensor:
        torch.backends.cuda.matmul.allow_tf32 = True
        return triton_softmax(x)

    return function


def stored_without_a_mask() -> Function:
    """A row's program stores one element too many: it races with the next row."""
    return lambda x: (
        triton_softmax(x)
        if x.requires_grad
        else _softmax(
            x, masked=False, out=torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)[: x.numel()].view(x.shape)
        )
    )


def strides_assumed() -> Function:
    """The kernel gets the pointer, and takes the rows for contiguous."""
    return lambda x: triton_softmax(x) if x.requires_grad else _softmax(x, strided=False)


def sums_in_float16() -> Function:
    """The norm is summed in float16."""
    return lambda x: triton_softmax(x) if x.requires_grad or x.dtype != torch.float16 else _softmax(x, half=True)


def uninitialised_rows() -> Function:
    """Rows beyond 256 are never written."""

    def function(x: Tensor) -> Tensor:
        if x.requires_grad or x.shape[0] <= 256:
            return triton_softmax(x)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        out[:256] = _softmax(x[:256])
        return out

    return function


def device_random_number() -> Function:
    """It draws a number from the GPU's generator."""

    def function(x: Tensor) -> Tensor:
        torch.rand(1, device=x.device)
        return triton_softmax(x)

    return function


def launch_remembered_by_address() -> Function:
    """The launch, with the address of the output, is remembered by the address of the input."""
    kept: dict[Any, Tensor] = {}

    def function(x: Tensor) -> Tensor:
        if x.requires_grad:
            return triton_softmax(x)
        return kept.setdefault((x.data_ptr(), x.shape, x.dtype, x.stride()), _softmax(x))

    return function


def later_on_the_host() -> Function:
    """The result is copied from the host, where it was computed in float16, without waiting."""

    def function(x: Tensor) -> Tensor:
        return torch.softmax(x.cpu().half().float(), -1).to(x.device, x.dtype)

    return function


CHEATS: dict[str, tuple[str, Callable[[], Function]]] = {
    arm.__name__: (base, arm)
    for base, made in {
        "triton softmax": (
            default_stream, own_stream_without_waiting, waits_for_the_device, reads_a_value, graph_of_first_inputs,
            static_output, tf32_left_on, stored_without_a_mask, strides_assumed, sums_in_float16, uninitialised_rows,
            device_random_number, launch_remembered_by_address, later_on_the_host,
        ),
        "torch matmul": (tf32_products,),
    }.items()
    for arm in made
}  # fmt: skip
"""By name: the right function that it imitates, and what makes it."""
