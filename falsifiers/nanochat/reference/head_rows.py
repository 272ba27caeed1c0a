"""Computes the loss of each row of a chunk of logits, and overwrites the logits with their gradient.

On a GPU, one program has one row. Its first sweep computes maximum, sum of exponentials (Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018), the target's logit and, for label smoothing, the sum of the logits.
Its second sweep writes the gradient. A row of 65,536 bfloat16 logits takes 128 KiB, so the second sweep reads it from
L2.

The sweeps can be launched separately, so that processes with shards of the vocabulary can combine their statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from falsifiers.nanochat.reference.kernel import Kernel

_BLOCKS = {"cuda": 16384, "cpu": 128}
"""Columns per step of a sweep. On a CPU the interpreter tests the kernel, and few columns give several steps."""
_TALL = {"cuda": 1, "cpu": 4}
"""Rows per program. The interpreter's time depends on the number of programs."""
_ELEMENTS = 4096


@dataclass(frozen=True)
class RowLoss:
    """The loss of a row with logits l and target t, where L is the logarithm of the sum of exp(l).

    (1 - label_smoothing) (L - l[t]) + label_smoothing (L - mean of l) + z_loss L^2

    Attributes:
        ignore_index: the target of rows that have neither loss nor gradient.
        label_smoothing: the share of the target's probability that is spread over the whole vocabulary.
        z_loss: pulls L towards 0, so that the sum of exponentials stays near 1.
        softcap: each logit x becomes softcap * tanh(x / softcap) first; 0 for no cap.
    """

    ignore_index: int = -100
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    softcap: float = 0.0


def row_losses(logits: Tensor, targets: Tensor, scales: Tensor, of: RowLoss, *, write: bool) -> Tensor:
    """Return the unscaled losses [rows] in float32, or float64 for float64 logits.

    Args:
        logits: [rows, vocabulary], rows contiguous. With `write`, they become the gradient of the sum of scaled losses.
        targets: [rows] int64. A target outside the vocabulary has a loss of NaN.
        scales: [rows], factors of each row's gradient before it is rounded to the dtype of the logits.
    """
    if logits.dtype is torch.float64:
        return _in_torch(logits, targets, scales, of, write)
    losses = torch.empty(len(logits), device=logits.device, dtype=torch.float32)
    _launch(logits, targets, scales, losses, losses, 0, logits.shape[1], of, gather=True, write=write)
    return losses


def gather_rows(logits: Tensor, targets: Tensor, first: int, whole: int, of: RowLoss) -> Tensor:
    """Return [4, rows] float32 of a shard of the vocabulary: maximum, sum of exponentials of the logits less the
    maximum, the target's logit or 0 if it is in another shard, and the sum of the logits.

    Args:
        first: the token that the shard begins with.
        whole: the size of the whole vocabulary.
    """
    gathered = torch.empty(4, len(logits), device=logits.device, dtype=torch.float32)
    _launch(logits, targets, gathered, gathered, gathered, first, whole, of, gather=True, write=False, shard=True)
    return gathered


def write_rows(
    logits: Tensor, targets: Tensor, scales: Tensor, gathered: Tensor, first: int, whole: int, of: RowLoss
) -> Tensor:
    """Return the losses of the rows, and overwrite a shard's logits with the gradient. See `row_losses`.

    Args:
        gathered: the result of `gather_rows`, combined over all shards.
    """
    losses = torch.empty(len(logits), device=logits.device, dtype=torch.float32)
    _launch(logits, targets, scales, losses, gathered, first, whole, of, gather=False, write=True, shard=True)
    return losses


def scale_in_place(tensor: Tensor, factor: Tensor) -> None:
    """Multiply a contiguous tensor by a scalar on its device, with one rounding. A scalar of 1 moves no memory."""
    if tensor.dtype is torch.float64:
        tensor.mul_(factor)
        return
    if not tensor.is_cuda and tensor.dtype is not torch.float32:  # the interpreter truncates instead of rounding
        tensor.copy_(tensor.float().mul_(factor))
        return
    grid = (triton.cdiv(tensor.numel(), _ELEMENTS),)
    _SCALE.launch(grid, tensor, tensor, factor.float(), tensor.numel(), block=_ELEMENTS)


def _launch(
    logits: Tensor, targets: Tensor, scales: Tensor, losses: Tensor, gathered: Tensor, first: int, whole: int,
    of: RowLoss, *, gather: bool, write: bool, shard: bool = False,
) -> None:  # fmt: skip
    rows, vocabulary = logits.shape
    if rows == 0:
        return
    if not logits.is_cuda and logits.dtype is not torch.float32:  # the interpreter truncates instead of rounding
        precise = logits.float()
        _launch(precise, targets, scales, losses, gathered, first, whole, of, gather=gather, write=write, shard=shard)
        logits.copy_(precise)
        return
    block = min(_BLOCKS[logits.device.type], triton.next_power_of_2(vocabulary))
    tall = _TALL[logits.device.type]
    _ROWS.launch(
        (triton.cdiv(rows, tall),), logits,
        logits, targets, scales, losses, gathered, rows, logits.stride(0), vocabulary, first, whole,
        of.label_smoothing, of.z_loss, of.softcap, of.ignore_index,
        gather=gather, write=write, shard=shard, capped=of.softcap != 0.0,
        smoothed=of.label_smoothing != 0.0, tall=tall, block=block, num_warps=max(4, min(16, block // 512)),
    )  # fmt: skip


_maximum = tl.standard._elementwise_max  # type: ignore[attr-defined]
_sum = tl.standard._sum_combine  # type: ignore[attr-defined]


def _rows(  # type: ignore[no-untyped-def]
    logits, targets, scales, losses, gathered, rows, row_stride, vocabulary, first, whole,
    smoothing, z_loss, softcap, ignored,
    gather: tl.constexpr, write: tl.constexpr, shard: tl.constexpr, capped: tl.constexpr, smoothed: tl.constexpr,
    tall: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """A program has `tall` rows; vectors over rows are columns [tall, 1]."""
    row = tl.program_id(0) * tall + tl.arange(0, tall)[:, None]
    there = row < rows
    place = logits + row.to(tl.int64) * row_stride
    target = tl.load(targets + row, mask=there, other=0)
    counts = there & (target != ignored)
    at = target - first
    mine = counts & (at >= 0) & (at < vocabulary)
    at_target = tl.load(place + at, mask=mine, other=0.0).to(tl.float32)
    slope_at_target = 1.0
    if capped:
        shrunk = tl.exp(-2.0 * tl.abs(at_target) / softcap)
        slope_at_target = 4.0 * shrunk / ((1.0 + shrunk) * (1.0 + shrunk))
        at_target = tl.where(at_target < 0.0, -softcap, softcap) * (1.0 - shrunk) / (1.0 + shrunk)
    own_target = at_target
    if gather:
        maximum = tl.where(counts, float("-inf"), tl.full([tall, 1], 0.0, tl.float32))
        total = tl.where(counts, 0.0, tl.full([tall, 1], 1.0, tl.float32))
        summed = tl.full([tall, 1], 0.0, tl.float32)
        for start in range(0, vocabulary, block):
            columns = start + tl.arange(0, block)[None, :]
            inside = columns < vocabulary
            read = tl.load(place + columns, mask=inside & counts, other=float("-inf"), eviction_policy="evict_last")
            values = read.to(tl.float32)
            if capped:
                small = tl.exp(-2.0 * tl.abs(values) / softcap)
                values = tl.where(values < 0.0, -softcap, softcap) * (1.0 - small) / (1.0 + small)
                values = tl.where(inside, values, float("-inf"))
            if smoothed:
                summed += tl.reduce(tl.where(inside, values, 0.0), 1, _sum)[:, None]
            larger = tl.maximum(maximum, tl.reduce(values, 1, _maximum)[:, None])
            total = total * tl.exp(maximum - larger) + tl.reduce(tl.exp(values - larger), 1, _sum)[:, None]
            maximum = larger
        if shard:
            tl.store(gathered + row, maximum, mask=there)
            tl.store(gathered + rows + row, total, mask=there)
            tl.store(gathered + 2 * rows + row, at_target, mask=there)
            tl.store(gathered + 3 * rows + row, summed, mask=there)
    else:
        maximum = tl.load(gathered + row, mask=there, other=0.0)
        total = tl.load(gathered + rows + row, mask=there, other=1.0)
        at_target = tl.load(gathered + 2 * rows + row, mask=there, other=0.0)
        summed = tl.load(gathered + 3 * rows + row, mask=there, other=0.0)
    log_sum = maximum + tl.log(total)
    if write or not shard:
        loss = log_sum - (1.0 - smoothing) * at_target - smoothing / whole * summed + z_loss * log_sum * log_sum
        loss = tl.where((target >= 0) & (target < whole), loss, float("nan"))
        tl.store(losses + row, tl.where(counts, loss, 0.0), mask=there)
    if write:
        scale = tl.where(counts, tl.load(scales + row, mask=there, other=0.0), 0.0)
        factor = (1.0 + 2.0 * z_loss * log_sum) * scale
        even = smoothing / whole * scale
        blocks = (vocabulary + block - 1) // block
        tl.debug_barrier()  # every warp has read the target's logit
        for number in range(blocks):
            columns = (blocks - 1 - number) * block + tl.arange(0, block)[None, :]  # the last one read is still in L2
            inside = there & (columns < vocabulary)
            read = tl.load(place + columns, mask=inside & counts, other=0.0, eviction_policy="evict_first")
            values = read.to(tl.float32)
            slope = 1.0
            if capped:
                small = tl.exp(-2.0 * tl.abs(values) / softcap)
                slope = 4.0 * small / ((1.0 + small) * (1.0 + small))  # 1 - tanh^2, exact where tanh is near 1
                values = tl.where(values < 0.0, -softcap, softcap) * (1.0 - small) / (1.0 + small)
            gradient = (tl.exp(values - log_sum) * factor - even) * slope
            tl.store(place + columns, gradient.to(logits.dtype.element_ty), mask=inside)
        tl.debug_barrier()  # the target's element is written once more
        gradient = tl.exp(own_target - log_sum) * factor - even - (1.0 - smoothing) * scale
        tl.store(place + at, (gradient * slope_at_target).to(logits.dtype.element_ty), mask=mine)


def _scale(tensor, factor, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    by = tl.load(factor)
    if by != 1.0:
        at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        values = tl.load(tensor + at, mask=at < size, other=0.0).to(tl.float32)
        tl.store(tensor + at, (values * by).to(tensor.dtype.element_ty), mask=at < size)


_ROWS = Kernel(_rows, varying=("rows", "first", "ignored"))
_SCALE = Kernel(_scale)


def _in_torch(logits: Tensor, targets: Tensor, scales: Tensor, of: RowLoss, write: bool) -> Tensor:
    """`row_losses` by torch's own operations."""
    counts = (targets != of.ignore_index).unsqueeze(-1)
    outside = (targets < 0) | (targets >= logits.shape[-1])
    at = targets.where(~outside, 0).unsqueeze(-1)
    values = of.softcap * (logits / of.softcap).tanh() if of.softcap else logits
    log_sum = values.logsumexp(dim=-1, keepdim=True)
    smoothing = of.label_smoothing
    losses = log_sum - (1.0 - smoothing) * values.gather(-1, at) - smoothing * values.mean(dim=-1, keepdim=True)
    losses = (losses + of.z_loss * log_sum**2).masked_fill(outside.unsqueeze(-1), float("nan"))
    if write:
        gradient = (values - log_sum).exp() * (1.0 + 2.0 * of.z_loss * log_sum) - smoothing / logits.shape[-1]
        gradient.scatter_add_(-1, at, torch.full_like(log_sum, smoothing - 1.0))
        if of.softcap:
            gradient *= 1.0 - (values / of.softcap) ** 2
        logits.copy_((gradient * scales.unsqueeze(-1)).where(counts, 0.0))
    return losses.where(counts, 0.0).squeeze(-1)
