"""A dynamic embedding table: int64 keys, rows that are created at a key's first training lookup, eviction by score.

    table = DynamicTable(Recipe(dim=128, buckets=1024, most_buckets=1 << 17, optimizer="adam"), "cuda")
    rows = table.train(keys)            # [n, 128]; the backward pass updates the table, as fbgemm's fused optimizers do
    loss(rows).backward()
    rows = table.evaluate(keys)         # 0 for unknown keys; nothing changes

`dynamic_tables.Recipe` describes a table. A row is the value with the optimizer's state beside it, in one array. With
`cached_buckets`, rows are in pinned host memory, which kernels access directly, and the device caches those of the last
batches. A row that leaves the cache is written back.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.reference import row_kernels
from falsifiers.recsys.reference.bucket_index import BucketIndex, Touched
from falsifiers.recsys.reference.key_groups import PIECE, KeyGroups, grouped, pieces
from falsifiers.recsys.reference.row_kernels import copy_rows, update_rows
from falsifiers.recsys.reference.table_kernels import start_rows
from falsifiers.recsys.reference.table_launch import aligned, blocks_of, launch_rows

_RULES = {"sgd": 0, "adagrad": 1, "rowwise_adagrad": 2, "adam": 3, "none": 4}
_KINDS = {"uniform": 0, "normal": 1, "constant": 2}
_ALIGNED = 4
"""Rows begin at multiples of this many numbers, which is 16 bytes."""
_PROGRAMS = 132 * 16
"""Programs that update rows, one block after another: as many as an H200 runs at a time."""


@dataclass(frozen=True)
class Batch:
    """A training lookup.

    Attributes:
        of: its keys.
        places: [n] int64, where the row of each group is; see `row_kernels`.
        version: the version of the table for which the places are valid.
    """

    of: KeyGroups
    places: Tensor
    version: int


class DynamicTable:
    """One table on one device.

    Attributes:
        rows: [slots, width], one per slot of the index; in host memory if there is a cache.
        updates: the number of backward passes that changed rows.
        lookups: the number of training lookups.
    """

    def __init__(self, recipe: Recipe, device: str | torch.device) -> None:
        self.recipe, self.device = recipe, torch.device(device)
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.updates = self.lookups = 0
        self._time = self._version = self._most = 0
        self._state = {"sum": recipe.dim} if recipe.optimizer == "adagrad" else {}
        self._state |= {"sum": 1} if recipe.optimizer == "rowwise_adagrad" else {}
        self._state |= {"m": recipe.dim, "v": recipe.dim} if recipe.optimizer == "adam" else {}
        self._used = recipe.dim + sum(self._state.values())
        self.width = blocks_of(self._used, _ALIGNED) * _ALIGNED
        self.index = BucketIndex(recipe.buckets, self.device)
        self.rows = self._new_rows(self.index.capacity, in_host=bool(recipe.cached_buckets))
        self.cache = BucketIndex(recipe.cached_buckets, self.device) if recipe.cached_buckets else None
        self.near = self._new_rows(self.cache.capacity) if self.cache else self.rows
        first = recipe.num_embeddings**-0.5 if recipe.initial == "uniform" else recipe.spread
        self._first = torch.tensor([first], dtype=torch.float64, device=self.device)
        self._anchor = torch.zeros((), device=self.device, requires_grad=True)

    def size(self) -> int:
        return self.index.size

    def capacity(self) -> int:
        return self.index.capacity

    def train(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Tensor:
        """Return rows [n, dim]; their backward pass updates the table.

        Args:
            keys: [n] int64.
            score: of the keys, if the recipe says "custom".
            weights: [n] int64, how many occurrences each item represents.
        """
        batch = self.touch(keys, score, weights)
        return _Rows.apply(self._anchor, self, batch)  # type: ignore[no-untyped-call,no-any-return]

    def evaluate(self, keys: Tensor) -> Tensor:
        return self.gather(self.places(keys), self.recipe.dim)

    def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
        """Insert absent keys, set scores, and copy rows to the device."""
        self.lookups += 1
        now, of = self.score(score), grouped(keys, weights)
        touched = self._ask(of, now)
        return Batch(of, touched.slots if self.cache is None else self._fetch(self.cache, of, touched), self._version)

    def score(self, given: int | None) -> int | None:
        """Return the score of this lookup's keys; None where occurrences are counted."""
        kind = self.recipe.scoring
        if kind == "timestamp":
            self._time = max(self._time + 1, time.time_ns())
            return self._time
        if kind == "custom" and given is None:
            raise ValueError("each training lookup needs a score")
        return {"lfu": None, "step": self.lookups, "custom": given}[kind]

    def places(self, keys: Tensor, of: KeyGroups | None = None) -> Tensor:
        """Return the places of the newest rows of keys, or of groups with these keys."""
        slots = self.index.find(keys, of)
        return slots if self.cache is None else _joined(self.cache.find(keys, of), slots)

    def gather(self, places: Tensor, width: int) -> Tensor:
        """Return the first numbers of rows at places, [n, width]."""
        out = torch.empty(len(places), width, device=self.device)
        self._copy(self.near, places, out, None, width)
        return out

    def spread(self, batch: Batch) -> Tensor:
        """Return the row of each item of a batch, [n, dim]."""
        return spread_rows(
            batch.of, self.near, self.rows, batch.places, self.width, self.recipe.dim, tiered=self.cache is not None
        )  # fmt: skip

    def update(self, batch: Batch, gradients: Tensor) -> None:
        """Make an optimizer's step with the gradients [n, dim] of a batch; those of equal keys are summed."""
        self.updates += 1
        of = batch.of
        places = batch.places if batch.version == self._version else self.places(of.keys, of)
        self._step(of, gradients, self.near, places, self.recipe.optimizer, self.width)

    def summed(self, of: KeyGroups, gradients: Tensor) -> Tensor:
        """Return the sum of each group's gradients, [n, dim]."""
        out = torch.empty(len(of), self.recipe.dim, device=self.device)
        self._step(of, gradients, out, of.keys, "none", self.recipe.dim)
        return out

    def _step(self, of: KeyGroups, gradients: Tensor, near: Tensor, places: Tensor, rule: str, width: int) -> None:
        """Sum gradients, and update rows with them."""
        recipe, gradients = self.recipe, aligned(gradients)
        sums, levels = pieces(gradients, of)
        updates = max(self.updates, 1)
        launch_rows(
            update_rows, self.device, len(of), recipe.dim,
            near, self.rows, places, gradients, of.items, of.starts, of.groups, len(of), sums,
            recipe.rate, recipe.eps, 1.0 / (1.0 - 0.9**updates), 1.0 / (1.0 - 0.999**updates),
            width=width, dim=recipe.dim, rule=_RULES[rule], tiered=self.cache is not None and rule != "none",
            piece=PIECE, levels=levels, at_once=4, most=_PROGRAMS,
        )  # fmt: skip

    def dump(self, path: Path, at_least: int | None = None) -> None:
        """Write all keys, or those of a score, with values, scores and state."""
        save_file({name: tensor.contiguous().cpu() for name, tensor in self.dumped(at_least).items()}, path)

    def dumped(self, at_least: int | None = None) -> dict[str, Tensor]:
        slots = self.index.occupied()
        if at_least is not None:
            slots = slots[self.index.scores[slots] >= at_least]
        keys = self.index.keys[slots]
        values, *state = self.gather(self.places(keys), self._used).split([self.recipe.dim, *self._state.values()], 1)
        tensors = {"keys": keys, "values": values, "scores": self.index.scores[slots]}
        for name, numbers in zip(self._state, state, strict=True):
            tensors[f"state.{name}"] = numbers.squeeze(1) if self.recipe.optimizer == "rowwise_adagrad" else numbers
        tensors["counts"] = torch.tensor([self.updates, self.lookups, self.index.buckets])
        return tensors

    def load(self, path: Path) -> None:
        self.take(load_file(path, device=str(self.device)))

    def take(self, dumped: Mapping[str, Tensor]) -> None:
        """Insert keys with values, scores and state; present keys are overwritten.

        Raises:
            ValueError, RuntimeError: the dump's rows, or their state, have another size. Nothing has changed.
        """
        keys, scores = dumped["keys"], dumped["scores"]
        if dumped["values"].shape[1] != self.recipe.dim:
            raise ValueError(f"rows of {dumped['values'].shape[1]} numbers do not fit a table of {self.recipe.dim}")
        state = [dumped[f"state.{name}"].reshape(len(keys), width) for name, width in self._state.items()]
        whole = torch.cat([dumped["values"], *state], 1).contiguous()
        updates, lookups, buckets = dumped["counts"].tolist()
        self.updates, self.lookups = max(self.updates, updates), max(self.lookups, lookups)
        while self.index.buckets < min(buckets, self.recipe.most_buckets):
            self._double()
        self._ask(grouped(keys), 0)
        slots = self.index.find(keys)
        self.index.scores[slots[slots >= 0]] = scores[slots >= 0]
        if self.recipe.scoring == "timestamp" and len(scores):
            self._time = max(self._time, int(scores.max()))
        self._copy(self.near, self.places(keys), whole, None, self._used, out=False)

    def _ask(self, of: KeyGroups, score: int | None) -> Touched:
        """Find a batch's keys, set their scores, and insert the absent ones."""
        self.index.batch += 1
        self._version += 1
        touched, buckets = self.index.touch(of, score), self.index.buckets
        if self._may_be_full(len(of)):
            known, number = self.index.size, of.number()
            more = int((touched.fresh[:number] > 0).sum())
            self._make_room(known, more)
            self._most = known + more
            if self.index.buckets != buckets:
                touched = replace(touched, slots=self.index.find(of.keys, of))
        self._insert(of, touched, score)
        return touched

    def _may_be_full(self, more: int) -> bool:
        """Whether a batch of this size might double the table. The host knows only an upper bound of its keys."""
        if self.index.buckets == self.recipe.most_buckets:
            return False
        self._most += more
        return 2 * self._most > self.index.capacity

    def _make_room(self, known: int, more: int) -> None:
        """Double the table until it is at most half full with the batch's new keys."""
        while 2 * (known + more) > self.index.capacity and self.index.buckets < self.recipe.most_buckets:
            self._double()

    def _double(self) -> None:
        """Double the buckets; rows move with their keys."""
        moved = self.index.double()
        kept = (moved >= 0).nonzero().squeeze(1)
        rows = self._new_rows(self.index.capacity, in_host=self.cache is not None)
        self._copy(self.rows, kept, rows, moved[kept], self.width)
        if self.rows.is_pinned():
            torch.cuda.current_stream(self.device).synchronize()  # torch would give pinned memory away at once
        self.near = self.near if self.cache is not None else rows
        self.rows = rows

    def _insert(self, of: KeyGroups, touched: Touched, score: int | None) -> None:
        """Insert fresh keys, and write their first rows."""
        self.index.insert(of, touched, score)
        if self.cache is not None:
            self.cache.remove(of, self.cache.find(touched.gone, of, touched.took))
        launch_rows(
            start_rows, self.device, len(of), self.width,
            self.rows, touched.slots, touched.fresh, of.keys, of.groups, self.index.newest, len(of), self.index.batch,
            self.recipe.seed, self._first,
            width=self.width, dim=self.recipe.dim, kind=_KINDS[self.recipe.initial], parts=8,
        )  # fmt: skip

    def _fetch(self, cache: BucketIndex, of: KeyGroups, touched: Touched) -> Tensor:
        """Copy the rows of a batch to the device, write back the rows that they replace, and return the places."""
        cache.batch += 1
        near = cache.touch(of, cache.batch, touched.slots >= 0)
        cache.insert(of, near, cache.batch)
        left = self.index.find(near.gone, of, near.took)
        self._copy(self.near, near.slots, self.rows, left, self.width, of)
        self._copy(self.rows, torch.where(near.fresh > 0, touched.slots, -1), self.near, near.slots, self.width, of)
        return _joined(near.slots, touched.slots)

    def _copy(
        self, rows: Tensor, places: Tensor, other: Tensor, at: Tensor | None, width: int,
        of: KeyGroups | None = None, *, out: bool = True,
    ) -> None:  # fmt: skip
        """Copy the first `width` numbers of rows at places to another tensor, or from there if not `out`.

        Args:
            at: for each place, the row of the other tensor, or -1 for none; the places are rows, or -1 for none. With
                None, the rows are in order, the places are the table's, and the row of no place is 0.
            of: there is a place for each of these groups.
        """
        n = len(places)
        launch_rows(
            copy_rows, self.device, n, width,
            rows, self.rows, places, places if of is None else of.groups, other, places if at is None else at, n,
            width=self.width, dim=width, stride=other.shape[1], out=out, grouped=of is not None, listed=at is not None,
            tiered=self.cache is not None and at is None,
        )  # fmt: skip

    def _new_rows(self, slots: int, *, in_host: bool = False) -> Tensor:
        if in_host:
            return torch.empty(slots, self.width, pin_memory=self.device.type == "cuda")
        return torch.empty(slots, self.width, device=self.device)


def spread_rows(
    of: KeyGroups, near: Tensor, far: Tensor, places: Tensor, width: int, dim: int, *, tiered: bool = False
) -> Tensor:  # fmt: skip
    """Return the first `dim` numbers of each item's row, given the places of the groups."""
    out = torch.empty(len(of), dim, device=near.device)
    launch_rows(
        row_kernels.spread_rows, near.device, len(of), dim, near, far, places, of.groups, of.items, out, len(of),
        width=width, dim=dim, tiered=tiered,
    )  # fmt: skip
    return out


def _joined(near: Tensor, slots: Tensor) -> Tensor:
    """Return places, given slots of the cache and of the index."""
    return torch.where(near >= 0, near, torch.where(slots < 0, -1, -2 - slots))


class _Rows(torch.autograd.Function):
    """Rows of a table; the backward pass is the optimizer's step."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, table: DynamicTable, batch: Batch) -> Tensor:  # type: ignore[override]
        ctx.table, ctx.batch = table, batch
        return table.spread(batch)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        ctx.table.update(ctx.batch, gradients)
        return None, None, None
