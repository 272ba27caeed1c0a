"""A dynamic embedding table over the ranks of torch.distributed: each key has one owner, which its hash says.

    table = ShardedTable(DynamicTable(recipe, device))      # on every rank
    rows = table.train(keys)                                # keys of this rank; rows come from their owners
    loss(rows).backward()                                   # gradients go to the owners, which make one step

A rank joins equal keys before it sends them, so a key travels once in each direction for each rank that asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

from falsifiers.recsys.reference.dynamic_table import DynamicTable

__all__ = ["ShardedTable"]


@dataclass(frozen=True)
class _Route:
    """How keys of this rank reach their owners, and those of all ranks reach this one.

    Attributes:
        keys: that this rank sends, distinct, by owner.
        counts: how often each of them occurs here.
        places: of each item of the batch, in `keys`.
        sent, received: how many keys go to each rank, and come from it.
    """

    keys: Tensor
    counts: Tensor
    places: Tensor
    sent: list[int]
    received: list[int]

    def to_owners(self, rows: Tensor) -> Tensor:
        """Return what all ranks send to this one: a row for each of their keys that it owns."""
        out = rows.new_empty(sum(self.received), *rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), self.received, self.sent)
        return out

    def from_owners(self, rows: Tensor) -> Tensor:
        """Return a row for each key of this rank, given one for each key that came here."""
        out = rows.new_empty(sum(self.sent), *rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), self.sent, self.received)
        return out


class ShardedTable:
    """This rank's part of a table, and the way to the others."""

    def __init__(self, own: DynamicTable) -> None:
        """`own` has the keys of this rank; the default process group is there already."""
        self.own, self.ranks, self.rank = own, dist.get_world_size(), dist.get_rank()
        self._anchor = torch.zeros((), device=own.device, requires_grad=True)

    def size(self) -> int:
        """Return how many keys this rank has."""
        return self.own.size()

    def capacity(self) -> int:
        """Return how many slots this rank has."""
        return self.own.capacity()

    def train(self, keys: Tensor, score: int | None = None) -> Tensor:
        """Return rows [n, dim]; their backward pass updates the tables of all ranks."""
        return _Rows.apply(self._anchor, self, self.route(keys), score)  # type: ignore[no-untyped-call,no-any-return]

    def evaluate(self, keys: Tensor) -> Tensor:
        """Return rows [n, dim], 0 for unknown keys."""
        route = self.route(keys)
        return route.from_owners(self.own.evaluate(route.to_owners(route.keys)))[route.places]

    def dump(self, path: Path, at_least: int | None = None) -> None:
        """Write the keys of this rank."""
        self.own.dump(path, at_least)

    def load(self, path: Path) -> None:
        """Take over the keys of a dump that this rank owns; the dump may be that of other numbers of ranks."""
        dumped = load_file(path, device=str(self.own.device))
        mine = self.owners(dumped["keys"]) == self.rank
        self.own.take({name: one if name == "counts" else one[mine] for name, one in dumped.items()})

    def owners(self, keys: Tensor) -> Tensor:
        """Return the rank of each key: bits of the hash that say nothing of the bucket."""
        return (self.own.index.hashes(keys) >> 32 & 0xFFFFFFFF) % self.ranks

    def route(self, keys: Tensor) -> _Route:
        """Return how keys reach their owners. The host waits for the numbers."""
        distinct, places, counts = keys.unique(return_inverse=True, return_counts=True)
        order = self.owners(distinct).sort(stable=True)
        sent = order.values.bincount(minlength=self.ranks)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        by_owner = order.indices
        return _Route(
            distinct[by_owner], counts[by_owner], by_owner.argsort()[places], sent.tolist(), received.tolist()
        )  # fmt: skip


class _Rows(torch.autograd.Function):
    """Rows of all ranks' tables; the backward pass is the optimizer's step of each."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, table: ShardedTable, route: _Route, score: int | None) -> Tensor:  # type: ignore[override]
        """Send keys, look them up where they are, and send rows back."""
        keys = route.to_owners(route.keys)
        places = table.own.touch(keys, score, route.to_owners(route.counts))
        ctx.table, ctx.route = table, route
        ctx.save_for_backward(keys)
        return route.from_owners(table.own.gather(places, table.own.recipe.dim))[route.places]

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Sum each key's gradients here, and send them to the owner."""
        (keys,), route, own = ctx.saved_tensors, ctx.route, ctx.table.own
        own.update(keys, route.to_owners(own.summed(gradients, route.places, len(route.keys))))
        return None, None, None, None
