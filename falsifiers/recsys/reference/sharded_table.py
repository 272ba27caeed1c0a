"""A dynamic embedding table over the ranks of torch.distributed: the hash of a key selects its owner.

    table = ShardedTable(DynamicTable(recipe, device))      # on every rank
    rows = table.train(keys)                                # keys of this rank; rows come from their owners
    loss(rows).backward()                                   # gradients go to the owners, which make one step

A rank deduplicates keys before it sends them, so a key travels once in each direction per requesting rank.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

from falsifiers.recsys.reference.dynamic_table import DynamicTable, spread_rows
from falsifiers.recsys.reference.key_groups import KeyGroups, grouped, hashes


@dataclass(frozen=True)
class _Route:
    """How this rank's keys reach their owners, and all ranks' keys reach this rank.

    Attributes:
        of: this rank's keys.
        order: [m], the groups that this rank sends, by owner.
        requests: [m, 2], the key of each of them, and its number of occurrences here.
        sent, received: the number of keys to each rank, and from each rank.
    """

    of: KeyGroups
    order: Tensor
    requests: Tensor
    sent: list[int]
    received: list[int]

    def to_owners(self, rows: Tensor) -> Tensor:
        """Return the rows of all ranks for this one: a row for each of their keys that it owns."""
        out = rows.new_empty(sum(self.received), *rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), self.received, self.sent)
        return out

    def from_owners(self, rows: Tensor) -> Tensor:
        """Return a row for each key of this rank, given a row for each received key."""
        out = rows.new_empty(sum(self.sent), *rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), self.sent, self.received)
        return out


class ShardedTable:
    """This rank's part of a table, and the communication with the others."""

    def __init__(self, own: DynamicTable) -> None:
        """`own` is the table of this rank; the default process group must exist."""
        self.own, self.ranks, self.rank = own, dist.get_world_size(), dist.get_rank()
        self._anchor = torch.zeros((), device=own.device, requires_grad=True)

    def size(self) -> int:
        return self.own.size()

    def capacity(self) -> int:
        return self.own.capacity()

    def train(self, keys: Tensor, score: int | None = None) -> Tensor:
        """Return rows [n, dim]; their backward pass updates the tables of all ranks."""
        return _Rows.apply(self._anchor, self, self.route(keys), score)  # type: ignore[no-untyped-call,no-any-return]

    def evaluate(self, keys: Tensor) -> Tensor:
        route = self.route(keys)
        return self.spread(route, self.own.evaluate(route.to_owners(route.requests)[:, 0]))

    def spread(self, route: _Route, rows: Tensor) -> Tensor:
        """Return the row of each item of this rank, given one for each key that came here."""
        there, dim = route.from_owners(rows), self.own.recipe.dim
        places = torch.empty_like(route.of.keys)
        places[route.order] = torch.arange(len(route.order), device=places.device)
        return spread_rows(route.of, there, there, places, dim, dim)

    def dump(self, path: Path, at_least: int | None = None) -> None:
        self.own.dump(path, at_least)

    def load(self, path: Path) -> None:
        """Load the keys of a dump that this rank owns. The dump may come from another number of ranks."""
        dumped = load_file(path, device=str(self.own.device))
        owned = self.owners(dumped["keys"]) == self.rank
        self.own.take({name: tensor if name == "counts" else tensor[owned] for name, tensor in dumped.items()})

    def owners(self, keys: Tensor) -> Tensor:
        """Return the owner of each key, from bits of the hash that do not select the bucket."""
        return (hashes(keys) >> 32 & 0xFFFFFFFF) % self.ranks

    def route(self, keys: Tensor) -> _Route:
        """Return how keys reach their owners. The host waits once, for the counts."""
        of = grouped(keys)
        behind = torch.arange(len(keys), device=keys.device) >= of.groups[-1:]
        by_owner = torch.where(behind, self.ranks, self.owners(of.keys)).to(torch.int16).sort(stable=True)
        ends = torch.searchsorted(
            by_owner.values, torch.arange(self.ranks, dtype=torch.int16, device=keys.device), right=True
        )
        sent = ends.diff(prepend=ends.new_zeros(1))
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        given, taken = torch.stack([sent, received]).tolist()
        order = by_owner.indices[: sum(given)]
        counts = of.starts[1:] - of.starts[:-1]
        return _Route(of, order, torch.stack([of.keys[order], counts[order]], 1), given, taken)


class _Rows(torch.autograd.Function):
    """Rows of all ranks' tables; the backward pass is the optimizer's step of each."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, table: ShardedTable, route: _Route, score: int | None) -> Tensor:  # type: ignore[override]
        """Send keys, look them up where they are, and send rows back."""
        keys, counts = route.to_owners(route.requests).unbind(1)
        ctx.table, ctx.route, ctx.batch = table, route, table.own.touch(keys, score, counts)
        return table.spread(route, table.own.spread(ctx.batch))

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Sum each key's gradients here, and send them to the owner."""
        route, own = ctx.route, ctx.table.own
        own.update(ctx.batch, route.to_owners(own.summed(route.of, gradients)[route.order]))
        return None, None, None, None
