"""Cross-entropy fused with the product of a language model's head; logits exist for one chunk of rows at a time.

The logits of a chunk are computed by a matrix product, replaced in place by their gradient (`head_rows`), used for the
gradients of the hidden states and the head, and overwritten by the next chunk's. So the loss and both gradients cost
three matrix products. The backward pass only multiplies by the gradient of the loss.

On sm_90 in bfloat16, the products are our own (`counted_products`). They write exponentials instead of logits, so that
no other kernel reads a chunk between them, and skip ignored rows. Elsewhere torch computes the products of all rows.

A row of a chunk begins at a multiple of 128 bytes for any vocabulary: 50,257 logits take the memory of 50,304.

torch.compile sees two operators and no value of the device, so there is no graph break and no wait for the GPU.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from falsifiers.nanochat.reference.counted_products import Counted, fits
from falsifiers.nanochat.reference.head_rows import RowLoss, row_losses, scale_in_place

_CHUNK_BYTES = 192 << 20
"""The most bytes of a chunk of logits, unless rows are so long that few of them exceed it."""
_FEWEST = 512
"""Rows of a chunk for any vocabulary, if the gradients are larger than that chunk."""
_MOST_CHUNKS = 64
"""Chunks of a call. Each costs the host half a millisecond, which the products of a narrow head do not hide."""
_ROW_BYTES = 128
"""The bytes of a row of a chunk are a multiple of this, so that tensor cores read whole lines."""
_OF_WEIGHT, _OF_HIDDEN = 0.6, 1.7
"""The largest chunk of logits, relative to the size of the two gradients."""
_TILE = 128
"""Rows of a tile of a matrix product."""
_PER_CHUNK = 0.8
"""Adding to the head's gradient in memory takes an H200 as long as the products of this many tiles."""
_TRIED = 8
"""Chunk sizes to compare."""


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    accumulate_float32: bool = False,
    chunk_rows: int | None = None,
) -> Tensor:
    """Return the loss of the logits `hidden @ weight.T`; its gradient reaches `hidden` and `weight`.

    The gradients of a mean or a sum are made in the forward pass and given away in the backward pass, which can
    therefore be called once. With reduction "none", the backward pass makes the logits again.

    Args:
        hidden: [..., width].
        weight: [vocabulary, width], of the same dtype: bfloat16, float16, float32 or float64. It may be an embedding's.
        targets: [...] int64, token ids.
        ignore_index, label_smoothing, z_loss, softcap: see `RowLoss`.
        reduction: "mean" is over the rows that count; it is 0 if none does.
        accumulate_float32: sum the head's gradient over the chunks in float32, for 4 bytes an element.
        chunk_rows: rows at a time.

    Returns:
        The loss in float32, or float64 for float64 inputs: a scalar, or [...] with reduction "none".

    Raises:
        ValueError: shapes, dtypes or options do not belong together.
    """
    if hidden.shape[:-1] != targets.shape or weight.ndim != 2 or hidden.shape[-1] != weight.shape[1]:
        shapes = f"{tuple(hidden.shape)}, {tuple(weight.shape)} and {tuple(targets.shape)}"
        raise ValueError(f"hidden, weight and targets of {shapes} are not [..., width], [vocabulary, width] and [...]")
    if hidden.dtype != weight.dtype or not hidden.dtype.is_floating_point or targets.dtype is not torch.int64:
        dtypes = f"{hidden.dtype}, {weight.dtype} and {targets.dtype}"
        raise ValueError(f"hidden, weight and targets are {dtypes}; the first two need one float dtype, the last int64")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction is {reduction!r}; give mean, sum or none")
    if not 0.0 <= label_smoothing <= 1.0 or z_loss < 0.0 or softcap < 0.0 or (chunk_rows or 1) < 1:
        raise ValueError("label_smoothing is from 0 to 1; z_loss, softcap are not negative; chunk_rows is at least 1")
    rows = hidden.flatten(0, -2)
    labels = targets.contiguous().flatten()  # the kernels read one label after another
    chunk = chunk_rows or rows_per_chunk(len(rows), *weight.shape, hidden.element_size())
    options = (ignore_index, label_smoothing, z_loss, softcap, chunk, accumulate_float32)
    if reduction == "none":
        losses: Tensor = _EachRow.apply(rows, weight, labels, *options)
        return losses.view(targets.shape)
    loss: Tensor = _Reduced.apply(rows, weight, labels, reduction == "mean", torch.is_grad_enabled(), *options)
    return loss


def rows_per_chunk(rows: int, vocabulary: int, width: int, element_size: int) -> int:
    """Return the rows of a chunk: whole tiles if possible, with the least overhead."""
    gradients = (_OF_WEIGHT * vocabulary + _OF_HIDDEN * rows) * width * element_size
    most = max(_CHUNK_BYTES, _FEWEST * vocabulary * element_size)
    largest = max(1, int(min(most, gradients)) // (vocabulary * element_size), math.ceil(rows / _MOST_CHUNKS))
    if largest >= rows:
        return max(1, rows)
    if largest < _TILE:
        return math.ceil(rows / math.ceil(rows / largest))
    sizes = range(largest // _TILE * _TILE, 0, -_TILE)[:_TRIED]
    return min(
        reversed(sizes),
        key=lambda size: math.ceil(rows % size / _TILE) - rows % size / _TILE + _PER_CHUNK * math.ceil(rows / size),
    )


class _Reduced(torch.autograd.Function):
    """The sum or the mean of the losses. The gradients are made with it."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, mean: bool, wanted: bool, *options: Any
    ) -> Tensor:
        wants = [wanted and needs for needs in ctx.needs_input_grad[:2]]
        losses, grad_hidden, grad_weight, unit = _head(hidden, weight, targets, _ones(hidden), mean, *options, *wants)[
            :4
        ]
        ctx.wants = wants
        ctx.save_for_backward(grad_hidden, grad_weight, unit)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight, unit = ctx.saved_tensors
        factor = grad_outputs[0] * unit
        for gradient, wanted in zip((grad_hidden, grad_weight), ctx.wants, strict=True):
            if wanted:
                _scaled(gradient, factor)
        return (grad_hidden if ctx.wants[0] else None, grad_weight if ctx.wants[1] else None, *[None] * 9)


class _EachRow(torch.autograd.Function):
    """The loss of every row. The backward pass scales the rows, so it makes the gradients."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, *options: Any) -> Tensor:
        ctx.options = options
        ctx.wants = ctx.needs_input_grad[:2]
        ctx.save_for_backward(hidden, weight, targets)
        losses: Tensor = _head(hidden, weight, targets, _ones(hidden), False, *options, False, False)[0]
        return losses

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, targets = ctx.saved_tensors
        scales = grad_outputs[0].contiguous()
        _, grad_hidden, grad_weight, unit = _head(hidden, weight, targets, scales, False, *ctx.options, *ctx.wants)[:4]
        for gradient, wanted in zip((grad_hidden, grad_weight), ctx.wants, strict=True):
            if wanted:
                _scaled(gradient, unit)
        return (grad_hidden if ctx.wants[0] else None, grad_weight if ctx.wants[1] else None, *[None] * 7)


@torch.library.custom_op("nanochat::head", mutates_args=())
def _head(
    hidden: Tensor, weight: Tensor, targets: Tensor, scales: Tensor, mean: bool,
    ignore_index: int, label_smoothing: float, z_loss: float, softcap: float, chunk: int, accumulate_float32: bool,
    wants_hidden: bool, wants_weight: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the scaled losses [rows], both gradients of their sum divided by a unit, the unit, and the chunk's memory.

    The chunk's memory is returned so that a memory probe sees it. Without scales, they are 1, or with `mean` 1 divided
    by the number of rows that count. A gradient that is not needed is empty. The unit is 1, or a power of two that
    keeps float16 gradients normal.
    """
    of = RowLoss(ignore_index, label_smoothing, z_loss, softcap)
    write = wants_hidden or wants_weight
    losses, grad_hidden, grad_weight, unit = _outputs(
        hidden, weight, accumulate_float32, wants_hidden=wants_hidden, wants_weight=wants_weight
    )
    buffer = _chunk_memory(hidden, weight, chunk)
    if fits(hidden, weight, of):
        chunks = buffer[:, : len(weight)]
        counted = Counted(hidden, weight, targets, scales, of, chunks, mean=mean, write=write)
        for start in range(0, len(hidden), chunk):
            counted.exponentials(start)
            counted.finish(start, losses, grad_hidden)
            if wants_weight:
                counted.add_of_weight(start, grad_weight)
        if wants_weight and label_smoothing:
            counted.smooth_of_weight(grad_weight)
        return losses, grad_hidden, grad_weight.to(weight.dtype), unit, buffer
    if not len(scales):
        counts = targets != ignore_index
        scales = counts.to(scales.dtype) / (counts.sum().clamp_min(1) if mean else 1)
    if hidden.dtype is torch.float16 and write and len(hidden):
        torch.exp2(scales.abs().amax().clamp_min(2.0**-100).log2().floor(), out=unit)
    for start in range(0, len(hidden), chunk):
        rows = slice(start, start + chunk)
        hidden_chunk = hidden[rows]
        logits = torch.mm(hidden_chunk, weight.T, out=buffer[: len(hidden_chunk), : len(weight)])
        losses[rows] = row_losses(logits, targets[rows], scales[rows] / unit, of, write=write)
        if wants_hidden:
            torch.mm(logits, weight, out=grad_hidden[rows])
        if wants_weight:
            add_product(grad_weight, logits.T, hidden_chunk, first=start == 0)
    return losses * scales, grad_hidden, grad_weight.to(weight.dtype), unit, buffer


@_head.register_fake
def _(
    hidden: Tensor, weight: Tensor, targets: Tensor, scales: Tensor, mean: bool,
    ignore_index: int, label_smoothing: float, z_loss: float, softcap: float, chunk: int, accumulate_float32: bool,
    wants_hidden: bool, wants_weight: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    losses, grad_hidden, grad_weight, unit = _outputs(
        hidden, weight, accumulate_float32, wants_hidden=wants_hidden, wants_weight=wants_weight
    )
    return losses, grad_hidden, grad_weight.to(weight.dtype), unit, _chunk_memory(hidden, weight, chunk)


def _chunk_memory(hidden: Tensor, weight: Tensor, chunk: int) -> Tensor:
    """Return memory for a chunk of logits, whose rows begin at multiples of `_ROW_BYTES`."""
    step = _ROW_BYTES // hidden.element_size()
    return hidden.new_empty(min(chunk, len(hidden)), math.ceil(len(weight) / step) * step)


def _outputs(
    hidden: Tensor, weight: Tensor, accumulate_float32: bool, *, wants_hidden: bool, wants_weight: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    precise = torch.promote_types(hidden.dtype, torch.float32)
    sums = precise if accumulate_float32 else weight.dtype
    losses = hidden.new_empty(len(hidden), dtype=precise)
    grad_hidden = torch.empty(hidden.shape if wants_hidden else (0,), dtype=hidden.dtype, device=hidden.device)
    grad_weight = torch.empty(weight.shape if wants_weight else (0,), dtype=sums, device=weight.device)
    if sums != weight.dtype or len(hidden) == 0:
        grad_weight.zero_()
    return losses, grad_hidden, grad_weight, hidden.new_ones((), dtype=precise)


@torch.library.custom_op("nanochat::scale_", mutates_args=("gradient",))
def _scaled(gradient: Tensor, factor: Tensor) -> None:
    scale_in_place(gradient, factor)


@_scaled.register_fake
def _(gradient: Tensor, factor: Tensor) -> None:
    return None


def add_product(total: Tensor, left: Tensor, right: Tensor, *, first: bool) -> None:
    """total += left @ right, summed in the dtype of `total`."""
    if first and total.dtype == left.dtype:
        torch.mm(left, right, out=total)
    elif total.dtype == left.dtype:
        total.addmm_(left, right)
    elif left.is_cuda:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total.addmm_(left.to(total.dtype), right.to(total.dtype))


def _ones(hidden: Tensor) -> Tensor:
    """Return the tensor that stands for scales of 1."""
    return hidden.new_empty(0, dtype=torch.promote_types(hidden.dtype, torch.float32))
