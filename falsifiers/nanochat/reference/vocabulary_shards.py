"""The fused loss over several processes, each with a shard of the vocabulary: consecutive rows of the head.

Each process computes the logits of its shard. For each chunk, the processes exchange four numbers per row
(`head_rows`); at the end, they add the gradients of the hidden states. No process holds all logits of a row.

Either all processes have the same rows (`sharded_linear_cross_entropy`), or each has its own rows, as in data-parallel
training (`data_parallel_linear_cross_entropy`).
"""

from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from falsifiers.nanochat.reference.head_rows import RowLoss, gather_rows, scale_in_place, write_rows
from falsifiers.nanochat.reference.linear_cross_entropy import add_product, rows_per_chunk


def sharded_linear_cross_entropy(
    hidden: Tensor,
    shard: Tensor,
    targets: Tensor,
    group: dist.ProcessGroup,
    *,
    of: RowLoss | None = None,
    reduction: Literal["mean", "sum"] = "mean",
    chunk_rows: int | None = None,
) -> Tensor:
    """Return the loss of `hidden @ head.T`, where the head is the shards of all processes of `group` in their order.

    All processes call it with the same hidden states and targets. Each gets the whole loss, the whole gradient of the
    hidden states, and the gradient of its shard. The backward pass can be called once.

    Args:
        hidden: [rows, width], bfloat16, float16 or float32.
        shard: [tokens of this process, width]; the numbers of tokens may differ.
        targets: [rows] int64, ids in the whole vocabulary.

    Raises:
        ValueError: hidden states and shard are not of one of these dtypes.
    """
    if hidden.dtype != shard.dtype or hidden.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise ValueError(f"hidden states and shard are {hidden.dtype} and {shard.dtype}; give one dtype below float64")
    counts = targets != (of or RowLoss()).ignore_index
    scales = counts.float()
    if reduction == "mean":
        scales /= counts.sum().clamp_min(1)
    chunk = chunk_rows or rows_per_chunk(len(hidden), *shard.shape, hidden.element_size())
    loss: Tensor = _Sharded.apply(hidden, shard, targets, scales, group, of or RowLoss(), chunk)
    return loss


def data_parallel_linear_cross_entropy(
    hidden: Tensor, shard: Tensor, targets: Tensor, group: dist.ProcessGroup, **options: Any
) -> Tensor:
    """Return the loss of the rows of all processes of `group`. Each process has rows of its own, equally many.

    Each process gets the loss of all rows, the gradient of its own hidden states, and the gradient of its shard from
    all rows. It holds the hidden states of all processes during the forward pass, and their gradients until the
    backward pass. The arguments are those of `sharded_linear_cross_entropy`.
    """
    rows: Tensor = _AllRows.apply(hidden, group)
    return sharded_linear_cross_entropy(rows, shard, _from_all(targets, group).flatten(), group, **options)


class _AllRows(torch.autograd.Function):
    """The rows of all processes. The gradient that arrives is that of the whole loss, in all of them."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.own, ctx.processes = dist.get_rank(group), dist.get_world_size(group)
        return _from_all(hidden, group).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        rows = len(grad_outputs[0]) // ctx.processes
        return grad_outputs[0][ctx.own * rows : (ctx.own + 1) * rows], None


class _Sharded(torch.autograd.Function):
    """The sum of scaled losses. The gradients are made with it."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, shard: Tensor, targets: Tensor, scales: Tensor, group: dist.ProcessGroup,
        of: RowLoss, chunk: int,
    ) -> Tensor:  # fmt: skip
        sizes = _from_all(torch.tensor([len(shard)], device=shard.device), group)[:, 0].tolist()
        first, whole = sum(sizes[: dist.get_rank(group)]), sum(sizes)
        grad_hidden, grad_shard = torch.empty_like(hidden), torch.empty_like(shard)
        total = hidden.new_zeros((), dtype=torch.float32)
        buffer = hidden.new_empty(min(chunk, len(hidden)), len(shard))
        for start in range(0, len(hidden), chunk):
            rows = slice(start, start + chunk)
            hidden_chunk = hidden[rows]
            logits = torch.mm(hidden_chunk, shard.T, out=buffer[: len(hidden_chunk)])
            gathered = _joined(_from_all(gather_rows(logits, targets[rows], first, whole, of), group))
            losses = write_rows(logits, targets[rows], scales[rows], gathered, first, whole, of)
            total += losses @ scales[rows]
            torch.mm(logits, shard, out=grad_hidden[rows])
            add_product(grad_shard, logits.T, hidden_chunk, first=start == 0)
        dist.all_reduce(grad_hidden, group=group)
        ctx.gradients = grad_hidden, grad_shard
        return total

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_shard = ctx.gradients
        del ctx.gradients
        for gradient in (grad_hidden, grad_shard):
            scale_in_place(gradient, grad_output)
        return (grad_hidden, grad_shard, *[None] * 5)


def _from_all(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return the tensors of all processes, stacked in their order."""
    joined = tensor.new_empty(dist.get_world_size(group), *tensor.shape)
    dist.all_gather_into_tensor(joined.flatten(0, 1), tensor, group=group)
    return joined


def _joined(gathered: Tensor) -> Tensor:
    """Return the statistics [4, rows] of the whole vocabulary from those of its shards [shards, 4, rows]."""
    maxima, totals, at_target, summed = gathered.unbind(1)
    maximum = maxima.amax(dim=0)
    total = (totals * (maxima - maximum).exp()).sum(dim=0)
    return torch.stack((maximum, total, at_target.sum(dim=0), summed.sum(dim=0)))
