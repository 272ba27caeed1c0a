"""HSTU attention over jagged sequences, forward and backward, by our Triton kernels.

    out = hstu_attention(q, k, v, offsets, max_seqlen, alpha=128 ** -0.5, num_targets=targets)

The weights are silu(alpha q k) over a scaling length, times a mask, without a softmax ("Actions speak louder than
words", 2024). The host waits for nothing: grids come from `max_seqlen`. Results repeat bit by bit.

On a CPU, the kernels run in Triton's interpreter, for tests. It truncates to bfloat16 instead of rounding, so bfloat16
is computed in float32 there.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

import numpy
import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from falsifiers.recsys.reference import hstu_kernels

__all__ = ["Blocks", "HstuMask", "Plan", "backward", "forward", "hstu_attention", "plan_for"]

WIDTHS = (32, 64, 128)
"""Of q and k, and of v."""
DTYPES = (torch.bfloat16, torch.float16)
_SORTED = 64
"""Up to so many sequences, programs of the longest ones start first."""


@dataclass(frozen=True)
class HstuMask:
    """Which rows of a sequence attend to which keys.

    Attributes:
        causal: a row attends to earlier keys only, and to itself.
        num_targets: [batch], how many of the last rows of each sequence are targets; they do not see other groups.
        target_group_size: how many targets make a group.
        num_contextuals: of each sequence, how many of the first rows are contextual; they see all that is no target.
        max_attn_len: the farthest distance that a row attends to; 0 for any.
        min_full_attn_seq_len: the last so many rows of the history, and the targets, are free of that limit.
    """

    causal: bool = True
    num_targets: Tensor | None = None
    target_group_size: int = 1
    num_contextuals: int | Tensor | None = None
    max_attn_len: int = 0
    min_full_attn_seq_len: int = 0


@dataclass(frozen=True)
class Blocks:
    """How a kernel is cut into programs.

    Attributes:
        rows, keys: of a block.
        warps: of a program.
        stages: loads in flight.
        tma: whole blocks are loaded by the tensor memory accelerator.
        edges: where masked blocks are; see `hstu_kernels`.
        together: heads that take turns; 0 to begin with the longest sequences, head by head.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    tma: bool = True
    edges: int = 0
    together: int = 0


@dataclass(frozen=True)
class Plan:
    """The blocks of the three kernels: of the output, of the gradient of q, and of those of k and v."""

    out: Blocks
    of_q: Blocks
    of_kv: Blocks


_WIDE, _TALL = Blocks(16, 32, 4, 1, tma=False), Blocks(32, 16, 4, 1, tma=False)
_INTERPRETED = Plan(_TALL, _TALL, _WIDE)
_LONG = 2048
"""From this longest sequence on, the host's work for the tensor memory accelerator is hidden behind the kernels."""


def plan_for(width: int, value_width: int, max_seqlen: int, device: torch.device) -> Plan:
    """Return the blocks that were fastest on an H200, or small ones for the interpreter."""
    if device.type != "cuda":
        return _INTERPRETED
    tma = max_seqlen >= _LONG and torch.cuda.get_device_capability(device)[0] >= 9
    if max(width, value_width) < 128:
        plan = Plan(Blocks(128, 64, 4, 3), Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 3))
    elif max_seqlen >= _LONG:
        plan = Plan(Blocks(64, 64, 4, 3), Blocks(128, 64, 8, 3), Blocks(32, 64, 4, 3))
    else:
        plan = Plan(Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 2), Blocks(64, 64, 4, 2))
    return plan if tma else Plan(*(replace(one, tma=False) for one in (plan.out, plan.of_q, plan.of_kv)))


def hstu_attention(
    q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, max_seqlen: int, *, alpha: float, scaling_seqlen: int = -1,
    mask: HstuMask | None = None, plan: Plan | None = None,
) -> Tensor:  # fmt: skip
    """Return the attention of each sequence to itself; its gradient reaches q, k and v.

    Args:
        q, k: [rows of all sequences, heads, width] in bfloat16 or float16; any strides, but each head contiguous.
        v: [rows, heads, value width].
        offsets: [batch + 1], int32 or int64: where each sequence starts, and the end.
        max_seqlen: no sequence is longer; this is not checked, because the host would wait.
        alpha: the factor of the scores.
        scaling_seqlen: what silu is divided by; -1 for max_seqlen.

    Returns:
        [rows, heads, value width].

    Raises:
        ValueError: shapes, dtypes or the mask are not supported. No kernel has run then.
    """
    mask = mask or HstuMask()
    _require(q, k, v, offsets, mask)
    if scaling_seqlen == 0 or scaling_seqlen < -1 or max_seqlen < 1:
        raise ValueError(f"max_seqlen is {max_seqlen}, scaling_seqlen {scaling_seqlen}; both are at least 1, or -1")
    scale = 1.0 / (max_seqlen if scaling_seqlen == -1 else scaling_seqlen)
    out: Tensor = _Attention.apply(q, k, v, offsets, max_seqlen, alpha, scale, mask, plan)
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, longest: int, alpha: float, scale: float,
        mask: HstuMask, plan: Plan | None,
    ) -> Tensor:  # fmt: skip
        plan = plan or plan_for(q.shape[2], v.shape[2], longest, q.device)
        ctx.save_for_backward(q, k, v, offsets)
        ctx.rest = (longest, alpha, scale, mask, plan)
        return forward(q, k, v, offsets, *ctx.rest)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        return (*backward(above[0], *ctx.saved_tensors, *ctx.rest), *[None] * 6)


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    longest: int,
    alpha: float,
    scale: float,
    mask: HstuMask,
    plan: Plan,
) -> Tensor:
    """Return the output. `scale` is 1 over the scaling length; for the rest see `hstu_attention`."""
    out = v.new_empty(v.shape, dtype=v.dtype)
    _over_keys(out, q, k, v, None, offsets, longest, alpha, scale, mask, plan.out)
    return out


def backward(
    above: Tensor, q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, longest: int, alpha: float, scale: float,
    mask: HstuMask, plan: Plan,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of q, k and v. `above` [rows, heads, value width] is that of the output."""
    if above.stride(-1) != 1:
        above = above.contiguous()
    of_q, of_k, of_v = (one.new_empty(one.shape) for one in (q, k, v))
    _over_rows(of_k, of_v, q, k, v, above, offsets, longest, alpha, scale, mask, plan.of_kv)
    _over_keys(of_q, q, k, v, above, offsets, longest, alpha, scale, mask, plan.of_q)
    return of_q, of_k, of_v


def _over_keys(
    out: Tensor, q: Tensor, k: Tensor, v: Tensor, above: Tensor | None, offsets: Tensor, longest: int, alpha: float,
    scale: float, mask: HstuMask, blocks: Blocks,
) -> None:  # fmt: skip
    """Write the output; or the gradient of q, if there is a gradient of the output."""
    if not q.is_cuda and q.dtype is torch.bfloat16:
        precise = out.float()
        q, k, v = q.float(), k.float(), v.float()
        above = None if above is None else above.float()
        _over_keys(precise, q, k, v, above, offsets, longest, alpha, scale, mask, blocks)
        out.copy_(precise)
        return
    of = v if above is None else above
    tma = blocks.tma and _by_tma(k) and _by_tma(v)
    count = triton.cdiv(longest, blocks.rows)
    _launch(
        "over_keys", count * q.shape[1] * (len(offsets) - 1), q, blocks,
        q, k, v, of, out, _descriptor(k, blocks.keys) if tma else k, _descriptor(v, blocks.keys) if tma else v,
        offsets, *_counts(mask, offsets),
        *_strides(q, k, v, of, out), alpha / 2.0, scale if above is None else scale * alpha / 2.0,
        *_numbers(mask), q.shape[1], len(offsets) - 1, count, max(blocks.together, 1),
        gradient=above is not None, use_tma=tma, **_constants(q, v, mask, offsets, blocks),
    )  # fmt: skip


def _over_rows(
    of_k: Tensor, of_v: Tensor, q: Tensor, k: Tensor, v: Tensor, above: Tensor, offsets: Tensor, longest: int,
    alpha: float, scale: float, mask: HstuMask, blocks: Blocks,
) -> None:  # fmt: skip
    """Write the gradients of k and v."""
    if not q.is_cuda and q.dtype is torch.bfloat16:
        precise = of_k.float(), of_v.float()
        inputs = q.float(), k.float(), v.float(), above.float()
        _over_rows(*precise, *inputs, offsets, longest, alpha, scale, mask, blocks)
        of_k.copy_(precise[0])
        of_v.copy_(precise[1])
        return
    tma = blocks.tma and _by_tma(q) and _by_tma(above)
    count = triton.cdiv(longest, blocks.keys)
    _launch(
        "over_rows", count * q.shape[1] * (len(offsets) - 1), q, blocks,
        q, k, v, above, of_k, of_v,
        _descriptor(q, blocks.rows) if tma else q, _descriptor(above, blocks.rows) if tma else above,
        offsets, *_counts(mask, offsets),
        *_strides(q, k, v, above, of_k, of_v), alpha / 2.0, scale * alpha / 2.0, scale,
        *_numbers(mask), q.shape[1], len(offsets) - 1, count, max(blocks.together, 1),
        use_tma=tma, **_constants(q, v, mask, offsets, blocks),
    )  # fmt: skip


def _launch(name: str, programs: int, on: Tensor, blocks: Blocks, *arguments: Any, **constants: Any) -> None:
    """Run a kernel; compiled on CUDA, interpreted on a CPU.

    Triton's own launcher takes longer to find a compiled kernel than a short one runs. So it is asked once for each set
    of constants and dtypes, as long as addresses and strides are multiples of 16, which is all that it looks at else.
    """
    if programs == 0 or len(on) == 0:
        return
    constants |= {"row_block": blocks.rows, "key_block": blocks.keys, "stages": blocks.stages, "edges": blocks.edges}
    if not on.is_cuda:
        with numpy.errstate(over="ignore"):  # silu of a large negative score divides by infinity, as on a GPU
            getattr(_interpreted(), name)[(programs,)](*arguments, **constants)
        return
    kernel = getattr(hstu_kernels, name)
    with torch.cuda.device_of(on):
        if not all(_is_aligned(one) for one in arguments if isinstance(one, Tensor)):
            kernel[(programs,)](*arguments, **constants, num_warps=blocks.warps)
            return
        dtypes = tuple(one.dtype for one in arguments if isinstance(one, Tensor))
        key = (name, on.device.index, blocks.warps, dtypes, *constants.values())
        compiled = _COMPILED.get(key)
        if compiled is None:
            _COMPILED[key] = kernel[(programs,)](*arguments, **constants, num_warps=blocks.warps)
            return
        rest = (constants[one] for one in kernel.arg_names[len(arguments) :])
        compiled[(programs, 1, 1)](*arguments, *rest)


_COMPILED: dict[tuple[Any, ...], Any] = {}


def _is_aligned(one: Tensor) -> bool:
    """Whether Triton takes its address and its strides for multiples of 16, and the strides for 32-bit numbers."""
    return one.data_ptr() % 16 == 0 and all(stride % 16 == 0 and stride < 1 << 31 for stride in one.stride()[:-1])


@cache
def _interpreted() -> ModuleType:
    """Return the kernels' module, loaded once more for the interpreter."""
    name = f"{hstu_kernels.__name__}_interpreted"
    spec = importlib.util.spec_from_file_location(name, hstu_kernels.__file__)
    if spec is None or spec.loader is None:
        raise ImportError(f"{hstu_kernels.__file__} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    before = triton.knobs.runtime.interpret
    triton.knobs.runtime.interpret = True
    try:
        spec.loader.exec_module(module)
    finally:
        triton.knobs.runtime.interpret = before
    return module


def _constants(q: Tensor, v: Tensor, mask: HstuMask, offsets: Tensor, blocks: Blocks) -> dict[str, Any]:
    batch = len(offsets) - 1
    contextuals = mask.num_contextuals
    return {
        "causal": mask.causal, "has_targets": mask.num_targets is not None,
        "context_kind": 2 if isinstance(contextuals, Tensor) else 1 if contextuals else 0,
        "has_window": mask.max_attn_len > 0, "has_full": mask.min_full_attn_seq_len > 0,
        "fast": q.is_cuda and q.dtype is torch.bfloat16,
        "pad": triton.next_power_of_2(batch) if 1 < batch <= _SORTED and not blocks.together else 0,
        "width": q.shape[2], "value_width": v.shape[2],
    }  # fmt: skip


def _counts(mask: HstuMask, unused: Tensor) -> tuple[Tensor, Tensor]:
    """Return targets and contextuals by sequence, or a tensor that is not read."""
    contextuals = mask.num_contextuals
    return (
        unused if mask.num_targets is None else mask.num_targets,
        contextuals if isinstance(contextuals, Tensor) else unused,
    )


def _numbers(mask: HstuMask) -> tuple[int, int, int, int]:
    context = mask.num_contextuals if isinstance(mask.num_contextuals, int) else 0
    return context, mask.target_group_size, mask.max_attn_len, mask.min_full_attn_seq_len


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for one in tensors for stride in one.stride()[:2]]


def _by_tma(one: Tensor) -> bool:
    """Whether the tensor memory accelerator can address it: everything in units of 16 bytes."""
    return one.data_ptr() % 16 == 0 and all(stride * one.element_size() % 16 == 0 for stride in one.stride()[:2])


def _descriptor(one: Tensor, rows: int) -> TensorDescriptor:
    """Describe [heads, rows, width], whose blocks are rows of one head."""
    length, heads, width = one.shape
    return TensorDescriptor(one, [heads, length, width], [one.stride(1), one.stride(0), 1], [1, rows, width])


def _require(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, mask: HstuMask) -> None:
    """Raise ValueError for what no kernel supports."""
    if q.ndim != 3 or k.shape != q.shape or v.ndim != 3 or v.shape[:2] != q.shape[:2] or offsets.ndim != 1:
        shapes = ", ".join(str(tuple(one.shape)) for one in (q, k, v, offsets))
        raise ValueError(
            f"q, k, v and offsets are {shapes}, not [rows, heads, width], the same, one of v, and [batch + 1]"
        )
    if q.dtype not in DTYPES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(
            f"q, k and v are {q.dtype}, {k.dtype} and {v.dtype}; give bfloat16 or float16, the same for all"
        )
    if q.shape[2] not in WIDTHS or v.shape[2] not in WIDTHS:
        raise ValueError(f"heads of q and v are {q.shape[2]} and {v.shape[2]} wide; give one of {WIDTHS} for each")
    if any(one.stride(-1) != 1 for one in (q, k, v)):
        raise ValueError("a head's numbers are not contiguous; call contiguous() on q, k and v")
    batch = len(offsets) - 1
    for name, counts in (("num_targets", mask.num_targets), ("num_contextuals", mask.num_contextuals)):
        if isinstance(counts, Tensor) and counts.shape != (batch,):
            raise ValueError(f"{name} is {tuple(counts.shape)}; give [{batch}], one for each sequence")
    if mask.target_group_size < 1 or min(mask.max_attn_len, mask.min_full_attn_seq_len) < 0:
        raise ValueError("target_group_size is at least 1; max_attn_len and min_full_attn_seq_len are not negative")
    if isinstance(mask.num_contextuals, int) and mask.num_contextuals < 0:
        raise ValueError("num_contextuals is negative")
