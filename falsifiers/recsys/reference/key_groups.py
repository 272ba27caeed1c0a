"""A batch's keys in groups of equal ones: sorted once on the device, for the lookup and for the sums of gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from falsifiers.recsys.reference.row_kernels import sum_pieces
from falsifiers.recsys.reference.table_kernels import count_heads, hash_keys, mark_groups
from falsifiers.recsys.reference.table_launch import aligned, blocks_of, launch, power_from

PIECE = 32
"""Longer runs of gradients of one key are summed in pieces, side by side."""
FEW = 64 * PIECE
"""So many sums of one key, and no more, are added up one after another."""


@dataclass(frozen=True)
class KeyGroups:
    """Equal keys side by side, in the order of their hash from its lowest bit, so those of a bucket are side by side.

    Only the device knows how many groups there are. What stands behind the last one means nothing.

    Attributes:
        keys: [n] int64, of each group.
        groups: [n] int32, for each item by group: its group, from 1. The last one is how many there are.
        items: [n] int64, which item of the batch this is; a group's are in their order.
        starts: [n + 1] int32, where each group begins, and where the last one ends.
        totals: [n] int64, the sums of the items' weights so far, or `items` if there are no weights.
        weighted: whether there are.
    """

    keys: Tensor
    groups: Tensor
    items: Tensor
    starts: Tensor
    totals: Tensor
    weighted: bool

    def __len__(self) -> int:
        """Return how many items the batch has, which is the most that groups can be."""
        return len(self.keys)

    def number(self) -> int:
        """Return how many groups there are. The host waits."""
        return int(self.groups[-1]) if len(self) else 0


def hashes(keys: Tensor, *, turned: bool = False) -> Tensor:
    """Return the hash of each key, whose lowest bits say its bucket; or a number in whose order these come first."""
    out, block = torch.empty_like(keys), _block(keys)
    launch(hash_keys, keys.device, blocks_of(len(keys), block), keys, len(keys), out, turned=turned, block=block)
    return out


def grouped(keys: Tensor, weights: Tensor | None = None) -> KeyGroups:
    """Group the keys [n] of a batch, each with its weight if there are any. The host waits for nothing."""
    keys, block = aligned(keys), _block(keys)
    blocks = blocks_of(len(keys), block)
    words, items = hashes(keys, turned=True).sort(stable=True)
    counts, groups, starts = (
        torch.empty(size, dtype=torch.int32, device=keys.device) for size in (blocks, len(keys), len(keys) + 1)
    )
    distinct = torch.empty_like(keys)
    launch(count_heads, keys.device, blocks, words, len(keys), counts, block=block)
    launch(
        mark_groups, keys.device, blocks,
        words, items, keys, counts, len(keys), groups, starts, distinct, blocks=power_from(blocks), block=block,
    )  # fmt: skip
    totals = items if weights is None else weights[items].cumsum(0)
    return KeyGroups(distinct, groups, items, starts, totals, weights is not None)


def pieces(rows: Tensor, of: KeyGroups) -> tuple[Tensor, int]:
    """Return sums of the pieces of long runs of rows [n, dim], one level behind the other, and how many levels.

    See `row_kernels.sum_pieces` for where they are.
    """
    n, dim = rows.shape
    sizes = []
    while n >= PIECE if not sizes else len(of) // PIECE ** len(sizes) > FEW:
        n = blocks_of(n, PIECE)
        sizes.append(n)
    sums = torch.empty(sum(sizes), dim, device=rows.device)
    owners = torch.empty(sum(sizes), dtype=torch.int32, device=rows.device)
    block, columns = min(16, PIECE), power_from(dim)
    count, first, base = len(rows), 0, 0
    for level, size in enumerate(sizes):
        source = (sums, owners) if level else (rows, of.groups)
        launch(
            sum_pieces, rows.device, size,
            source[0], of.items, source[1], of.starts, count, PIECE**level, first, base, sums, owners,
            dim=dim, ordered=level == 0, piece=PIECE, block=block, columns=columns,
        )  # fmt: skip
        count, first, base = size, base, base + size
    return sums, len(sizes)


def _block(keys: Tensor) -> int:
    return 1024 if keys.is_cuda else 64
