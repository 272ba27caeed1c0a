"""Groups of equal keys of a batch, sorted once on the device, for the lookup and for the sums of gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor

from falsifiers.recsys.reference.row_kernels import sum_pieces
from falsifiers.recsys.reference.table_kernels import count_heads, hash_keys, mark_groups
from falsifiers.recsys.reference.table_launch import aligned, blocks_of, launch, power_from

PIECE = 32
"""Longer runs of gradients of one key are summed in pieces, in parallel."""
FEW = 64 * PIECE
"""Up to this many sums of one key are added one after another."""


@dataclass(frozen=True)
class KeyGroups:
    """Equal keys, sorted by their bit-reversed hash, so that the keys of a bucket are adjacent.

    Only the device knows the number of groups. Values after the last group are undefined.

    Attributes:
        keys: [n] int64, of each group.
        groups: [n] int32, the group of each item in sorted order, from 1. The last one is the number of groups.
        items: [n] int64, the position in the batch of each item in sorted order, ascending in a group.
        starts: [n + 1] int32, where each group begins, and where the last one ends.
        totals: [n] int64, cumulative sums of the items' weights, or `items` without weights.
        weighted: whether there are weights.
    """

    keys: Tensor
    groups: Tensor
    items: Tensor
    starts: Tensor
    totals: Tensor
    weighted: bool

    def __len__(self) -> int:
        """Return the number of items of the batch, an upper bound of the number of groups."""
        return len(self.keys)

    def number(self) -> int:
        """Return the number of groups. The host waits."""
        return int(self.groups[-1]) if len(self) else 0


def hashes(keys: Tensor, *, turned: bool = False) -> Tensor:
    """Return the hash of each key, or a number that sorts by its lowest bits first. These bits select the bucket."""
    out, block = torch.empty_like(keys), _block(keys)
    launch(hash_keys, keys.device, blocks_of(len(keys), block), keys, len(keys), out, turned=turned, block=block)
    return out


def grouped(keys: Tensor, weights: Tensor | None = None) -> KeyGroups:
    """Group the keys [n] of a batch, each with its weight if there are any. The host does not wait."""
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
    """Return sums of the pieces of long runs of rows [n, dim], level after level, and the number of levels.

    See `row_kernels.sum_pieces` for their positions.
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
