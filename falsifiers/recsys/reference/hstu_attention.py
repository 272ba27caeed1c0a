"""HSTU attention over jagged sequences, forward and backward, by our Triton kernels.

    out = hstu_attention(q, k, v, offsets, max_seqlen, alpha=128 ** -0.5, mask=HstuMask(num_targets=targets))

The weights are silu(alpha q k) over a scaling length, times a mask, without a softmax ("Actions speak louder than
words", 2024). The host waits for nothing: grids come from `max_seqlen`. Results repeat bit by bit.

`hstu_plan` has the sizes of blocks, `hstu_launch` the launches, `hstu_kernels` the kernels, `hstu_pairs` the mask, and
`hstu_hopper` faster kernels for a causal mask alone. On a CPU, the kernels run in Triton's interpreter, for tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from falsifiers.recsys.reference.hstu_hopper import ROWS, hopper_keys, hopper_rows
from falsifiers.recsys.reference.hstu_kernels import over_keys, over_rows
from falsifiers.recsys.reference.hstu_launch import Launch
from falsifiers.recsys.reference.hstu_plan import Blocks, Plan, plan_for, side_by_side

WIDTHS = (32, 64, 128)
"""Of q and k, and of v."""
DTYPES = (torch.bfloat16, torch.float16)
_PASSES: dict[tuple[object, ...], Passes] = {}
_REMEMBERED = 1024
_SORTED = 64
"""Up to this many sequences, the programs of the longest ones start first."""


@dataclass(frozen=True)
class HstuMask:
    """Which rows of a sequence attend to which keys.

    Attributes:
        causal: a row attends only to itself and to earlier keys.
        num_targets: [batch], how many of the last rows of each sequence are targets; they do not attend to other
            groups.
        target_group_size: how many targets make a group.
        num_contextuals: [batch], how many of the first rows are contextual; they attend to all rows that are no
            targets.
        max_attn_len: the largest distance to an attended key; 0 for any.
        min_full_attn_seq_len: this many last rows of the history, and the targets, are exempt from that limit.
    """

    causal: bool = True
    num_targets: Tensor | None = None
    target_group_size: int = 1
    num_contextuals: Tensor | None = None
    max_attn_len: int = 0
    min_full_attn_seq_len: int = 0


_CAUSAL = HstuMask()


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
    mask = mask or _CAUSAL
    passes = passes_for(q, k, v, offsets, max_seqlen, alpha=alpha, scaling_seqlen=scaling_seqlen, mask=mask, plan=plan)
    out: Tensor = _Attention.apply(q, k, v, offsets, mask, passes)
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, mask: HstuMask, passes: Passes) -> Tensor:
        ctx.save_for_backward(q, k, v, offsets)
        ctx.rest = mask, passes
        return passes.forward(q, k, v, offsets, mask)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        mask, passes = ctx.rest
        return (*passes.backward(grad_outputs[0], *ctx.saved_tensors, mask), None, None, None)


def passes_for(
    q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, max_seqlen: int, *, alpha: float, scaling_seqlen: int = -1,
    mask: HstuMask | None = None, plan: Plan | None = None,
) -> Passes:  # fmt: skip
    """Return both passes, without autograd, for all tensors of the layout of these.

    The arguments of a kernel, except addresses, are prepared once per layout, because that takes longer than a short
    kernel.
    """
    mask = mask or _CAUSAL
    counts = (
        None if count is None else (count.shape, count.dtype, count.device)
        for count in (mask.num_targets, mask.num_contextuals)
    )
    key = (
        q.device, k.device, v.device, offsets.device, q.dtype, k.dtype, v.dtype,
        q.shape[1:], k.shape[1:], v.shape[1:], len(q) == len(k) == len(v),
        q.stride(), k.stride(), v.stride(), offsets.shape, offsets.dtype, max_seqlen, alpha, scaling_seqlen, plan,
        mask.causal, mask.target_group_size, mask.max_attn_len, mask.min_full_attn_seq_len, *counts,
    )  # fmt: skip
    passes = _PASSES.get(key)
    if passes is None:
        _require(q, k, v, offsets, mask)
        if scaling_seqlen == 0 or scaling_seqlen < -1 or max_seqlen < 1:
            raise ValueError(f"max_seqlen is {max_seqlen}, scaling_seqlen {scaling_seqlen}; both are at least 1, or -1")
        if len(_PASSES) >= _REMEMBERED:
            _PASSES.clear()
        scale = 1.0 / (max_seqlen if scaling_seqlen == -1 else scaling_seqlen)
        plan = plan or plan_for(q.shape[2], v.shape[2], max_seqlen, q.device)
        _PASSES[key] = passes = Passes(max_seqlen, alpha, scale, plan)
    return passes


class Passes:
    """Both passes for tensors of one layout. See `hstu_attention` for their arguments."""

    def __init__(self, longest: int, alpha: float, scale: float, plan: Plan) -> None:
        """Launch nothing; the first call brings tensors."""
        self._longest, self._alpha, self._scale, self._plan = longest, alpha, scale, plan
        self._out: Launch | None = None
        self._gradients: dict[tuple[int, ...], tuple[Launch, Launch]] = {}

    def forward(self, q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, mask: HstuMask) -> Tensor:
        out = v.new_empty(v.shape)
        counts, tensors = _counts(mask, offsets), (q, k, v, v, out)
        if self._out is None:
            blocks = self._plan.out
            self._out = self._launch(over_keys, tensors, (k, v), counts, mask, blocks, (self._scale,), gradient=False)
        self._out(tensors, (k, v), counts)
        return out

    def backward(
        self, grad_output: Tensor, q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, mask: HstuMask
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v. `grad_output` [rows, heads, value width] is that of the output."""
        if grad_output.stride(-1) != 1:
            grad_output = grad_output.contiguous()
        dq, dk, dv = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
        counts, by_rows, by_keys = _counts(mask, offsets), (q, k, v, grad_output, dk, dv), (q, k, v, grad_output, dq)
        launches = self._gradients.get(grad_output.stride())
        if launches is None:
            scale = self._scale * self._alpha / 2.0
            launches = self._gradients[grad_output.stride()] = (
                self._launch(over_rows, by_rows, (q, grad_output), counts, mask, self._plan.dkdv, (scale, self._scale)),
                self._launch(over_keys, by_keys, (k, v), counts, mask, self._plan.dq, (scale,), gradient=True),
            )
        launches[0](by_rows, (q, grad_output), counts)
        launches[1](by_keys, (k, v), counts)
        return dq, dk, dv

    def _launch(
        self, kernel: Any, tensors: tuple[Tensor, ...], tiled: tuple[Tensor, Tensor], counts: tuple[Tensor, ...],
        mask: HstuMask, blocks: Blocks, scales: tuple[float, ...], **constants: Any,
    ) -> Launch:  # fmt: skip
        """Prepare a kernel's arguments except addresses."""
        q, _, v, *_ = tensors
        batch, heads = len(counts[0]) - 1, q.shape[1]
        has_targets, has_contextuals = mask.num_targets is not None, mask.num_contextuals is not None
        count = triton.cdiv(self._longest, blocks.rows if kernel is over_keys else blocks.keys)
        numbers = (
            *(stride for tensor in tensors for stride in tensor.stride()[:2]), self._alpha / 2.0, *scales,
            mask.target_group_size, mask.max_attn_len, mask.min_full_attn_seq_len, heads, batch, count,
            max(blocks.together, 1),
        )  # fmt: skip
        alone = mask.causal and not (has_targets or has_contextuals or mask.max_attn_len)
        all_constants = constants | {
            "causal": mask.causal, "has_targets": has_targets, "has_contextuals": has_contextuals,
            "has_window": mask.max_attn_len > 0,
            "has_full": mask.max_attn_len > 0 and mask.min_full_attn_seq_len > 0,
            "merged": blocks.merged and alone,
            "fast": q.is_cuda and q.dtype is torch.bfloat16,
            "pad": triton.next_power_of_2(batch) if 1 < batch <= _SORTED and not blocks.together else 0,
            "width": q.shape[2], "value_width": v.shape[2], "block_m": blocks.rows, "block_n": blocks.keys,
            "stages": blocks.stages,
        }  # fmt: skip
        tma = blocks.tma and all(
            stride * tensor.element_size() % 16 == 0 for tensor in tiled for stride in tensor.stride()[:2]
        )
        tile = blocks.keys if kernel is over_keys else blocks.rows
        launch = Launch(kernel, count * heads * batch, numbers, all_constants, {"num_warps": blocks.warps}, tma, tile)
        if blocks.hopper is None or not alone or q.dtype is not torch.bfloat16 or q.shape[2] != v.shape[2]:
            return launch
        if any(stride % 8 for tensor in tensors[:4] for stride in tensor.stride()[:2]):
            return launch
        stages, residents = blocks.hopper
        count = triton.cdiv(self._longest, 2 * ROWS)
        numbers = (*numbers[:-2], count, side_by_side(self._longest, q.shape[2], v.shape[2]))
        constants |= {"width": q.shape[2], "stages": stages, "registers": 240 if residents == 1 else 112}
        options = {"num_warps": 4} if residents == 1 else {"num_warps": 4, "maxnreg": 80}
        kernel = hopper_keys if kernel is over_keys else hopper_rows
        return Launch(kernel, count * heads * batch, numbers, constants, options, True, ROWS // 2, otherwise=launch)


def _counts(mask: HstuMask, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return offsets, and targets and contextuals by sequence, or offsets again for unused ones."""
    offsets = offsets.contiguous()
    targets, contextuals = (
        offsets if count is None else count.contiguous() for count in (mask.num_targets, mask.num_contextuals)
    )
    return offsets, targets, contextuals


def _require(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, mask: HstuMask) -> None:
    """Raise ValueError for inputs that no kernel supports."""
    if q.ndim != 3 or k.shape != q.shape or v.ndim != 3 or v.shape[:2] != q.shape[:2] or offsets.ndim != 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (q, k, v, offsets))
        raise ValueError(
            f"q, k, v and offsets are {shapes}, not [rows, heads, width], the same, one of v, and [batch + 1]"
        )
    if q.dtype not in DTYPES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(
            f"q, k and v are {q.dtype}, {k.dtype} and {v.dtype}; give bfloat16 or float16, the same for all"
        )
    if q.shape[2] not in WIDTHS or v.shape[2] not in WIDTHS:
        raise ValueError(f"heads of q and v are {q.shape[2]} and {v.shape[2]} wide; give one of {WIDTHS} for each")
    if any(tensor.stride(-1) != 1 for tensor in (q, k, v)):
        raise ValueError("a head's numbers are not contiguous; call contiguous() on q, k and v")
    batch = len(offsets) - 1
    others = (k, v, offsets, mask.num_targets, mask.num_contextuals)
    if any(other is not None and other.device != q.device for other in others):
        raise ValueError(f"q is on {q.device}; put all tensors there")
    for name, counts in (("num_targets", mask.num_targets), ("num_contextuals", mask.num_contextuals)):
        if counts is not None and counts.shape != (batch,):
            raise ValueError(f"{name} is {tuple(counts.shape)}; give [{batch}], one for each sequence")
    if mask.target_group_size < 1 or min(mask.max_attn_len, mask.min_full_attn_seq_len) < 0:
        raise ValueError("target_group_size is at least 1; max_attn_len and min_full_attn_seq_len are not negative")
