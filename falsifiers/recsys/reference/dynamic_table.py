"""A dynamic embedding table: int64 keys, rows that are made when a key is first trained, and eviction by score.

    table = DynamicTable(Recipe(dim=128, buckets=1024, most_buckets=1 << 17, optimizer="adam"), "cuda")
    rows = table.train(keys)            # [n, 128]; the backward pass updates the table, as fbgemm's fused optimizers do
    loss(rows).backward()
    rows = table.evaluate(keys)         # 0 for unknown keys; nothing changes

`dynamic_tables.Recipe` says what a table does. A row is the value and the optimizer's state beside it, in one array.
With `cached_buckets` rows are in pinned host memory, which kernels reach directly, and those of the last batches are on
the device, too. A row that leaves the device is written back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import triton
from safetensors.torch import load_file, save_file
from torch import Tensor

from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.reference.bucket_index import BucketIndex, Fresh, launch
from falsifiers.recsys.reference.table_kernels import NOWHERE

__all__ = ["ROWS", "DynamicTable"]

_RULES = {"sgd": 0, "adagrad": 1, "rowwise_adagrad": 2, "adam": 3}
_KINDS = {"uniform": 0, "normal": 1, "constant": 2}
ROWS = (4, 4)
"""Of a program that reads or writes rows, and its warps, on a GPU."""
_PIECE = 32
"""Longer runs of gradients of one key are summed in pieces, side by side."""
_ALIGNED = 4
"""Rows begin at multiples of so many numbers, which is 16 bytes."""


class DynamicTable:
    """One table on one device.

    Attributes:
        rows: [slots, width], where the index has a slot for each key; in the host's memory if there is a cache.
        updates: how often a backward pass has changed rows.
        lookups: how many training lookups there were.
    """

    def __init__(self, recipe: Recipe, device: str | torch.device) -> None:
        """Make an empty table."""
        self.recipe, self.device = recipe, torch.device(device)
        self.updates = self.lookups = 0
        self._time = 0
        self._state = {"sum": recipe.dim} if recipe.optimizer == "adagrad" else {}
        self._state |= {"sum": 1} if recipe.optimizer == "rowwise_adagrad" else {}
        self._state |= {"m": recipe.dim, "v": recipe.dim} if recipe.optimizer == "adam" else {}
        self._used = recipe.dim + sum(self._state.values())
        self.width = triton.cdiv(self._used, _ALIGNED) * _ALIGNED
        self.index = BucketIndex(recipe.buckets, self.device)
        self.rows = self._new_rows(self.index.capacity, in_host=bool(recipe.cached_buckets))
        self.cache = BucketIndex(recipe.cached_buckets, self.device) if recipe.cached_buckets else None
        self.near = self._new_rows(self.cache.capacity) if self.cache else self.rows
        first = recipe.num_embeddings**-0.5 if recipe.initial == "uniform" else recipe.spread
        self._first = torch.tensor([first], dtype=torch.float64, device=self.device)
        self._anchor = torch.zeros((), device=self.device, requires_grad=True)

    def size(self) -> int:
        """Return how many keys there are."""
        return self.index.size

    def capacity(self) -> int:
        """Return how many slots there are."""
        return self.index.capacity

    def train(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Tensor:
        """Return rows [n, dim]; their backward pass updates the table.

        Args:
            keys: [n] int64.
            score: of the keys, if the recipe says "custom".
            weights: [n] int64, how many occurrences each item stands for.
        """
        places = self.touch(keys, score, weights)
        return _Rows.apply(self._anchor, self, keys, places)  # type: ignore[no-untyped-call,no-any-return]

    def evaluate(self, keys: Tensor) -> Tensor:
        """Return rows [n, dim], 0 for unknown keys."""
        return self.gather(self.places(keys), self.recipe.dim)

    def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Tensor:
        """Insert keys that are not there, set scores, bring rows to the device, and return the keys' places."""
        self.lookups += 1
        self.index.batch += 1
        now = self.score(score)
        slots = self.index.touch(keys, now, weights)
        fresh = self.index.fresh(keys, slots, weights)
        if fresh is not None:
            self._make_room(len(fresh.keys))
            self._insert(fresh, fresh.counts if now is None else torch.full_like(fresh.keys, now))
        if self.cache is not None:
            self._fetch(self.cache, keys)
        return slots if fresh is None and self.cache is None else self.places(keys)

    def score(self, given: int | None) -> int | None:
        """Return the score of this lookup's keys; None where occurrences are counted."""
        kind = self.recipe.scoring
        if kind == "timestamp":
            self._time = max(self._time + 1, time.time_ns())
            return self._time
        if kind == "custom" and given is None:
            raise ValueError("each training lookup needs a score")
        return {"lfu": None, "step": self.lookups, "custom": given}[kind]

    def version(self) -> tuple[int, int]:
        """Return another value whenever places may have changed."""
        return self.index.version, self.cache.version if self.cache is not None else 0

    def places(self, keys: Tensor) -> Tensor:
        """Return where the newest rows of keys are, as the kernels' module says."""
        slots = self.index.find(keys)
        if self.cache is None:
            return torch.where(slots < 0, NOWHERE, slots)
        near = self.cache.find(keys)
        return torch.where(near >= 0, near, torch.where(slots < 0, NOWHERE, -1 - slots))

    def gather(self, places: Tensor, width: int) -> Tensor:
        """Return the first numbers of rows at places, [n, width]."""
        out = torch.empty(len(places), width, device=self.device)
        self._copy(self.near, places, out, None, width)
        return out

    def update(self, keys: Tensor, gradients: Tensor, places: Tensor | None = None) -> None:
        """Make an optimizer's step with gradients [n, dim]; those of equal keys are summed.

        Args:
            places: of the keys, if they are known.
        """
        self.updates += 1
        recipe, gradients = self.recipe, gradients.contiguous()
        order = (self.places(keys) if places is None else places).sort(stable=True)
        distinct, counts = order.values.unique_consecutive(return_counts=True)
        starts = counts.cumsum(0) - counts
        pieces, piece_starts, piece_counts = self._in_pieces(gradients, order.indices, starts, counts)
        self._launch(
            "step", len(distinct), recipe.dim,
            self.near, self.rows, distinct, gradients, order.indices, starts, counts.where(piece_counts == 0, 0),
            pieces, piece_starts, piece_counts, len(distinct),
            recipe.rate, recipe.eps, 1.0 / (1.0 - 0.9**self.updates), 1.0 / (1.0 - 0.999**self.updates),
            width=self.width, dim=recipe.dim, rule=_RULES[recipe.optimizer], tiered=self.cache is not None,
            longest=self._longest(counts),
        )  # fmt: skip

    def summed(self, rows: Tensor, places: Tensor, number: int) -> Tensor:
        """Return the sums [number, dim] of the rows [n, dim] of each place, in their order."""
        order, counts = places.sort(stable=True).indices, places.bincount(minlength=number)
        starts = counts.cumsum(0) - counts
        rows = rows.contiguous()
        pieces, piece_starts, piece_counts = self._in_pieces(rows, order, starts, counts)
        out = self._sums(rows, order, starts, counts.where(piece_counts == 0, 0))
        long = (piece_counts > 0).nonzero().squeeze(1)
        out[long] = self._sums(pieces, None, piece_starts[long], piece_counts[long])
        return out

    def dump(self, path: Path, at_least: int | None = None) -> None:
        """Write all keys, or those of a score, with values, scores and state."""
        save_file({name: one.contiguous().cpu() for name, one in self.dumped(at_least).items()}, path)

    def dumped(self, at_least: int | None = None) -> dict[str, Tensor]:
        """Return what a dump has."""
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
        """Take over a dump's keys."""
        self.take(load_file(path, device=str(self.device)))

    def take(self, dumped: Mapping[str, Tensor]) -> None:
        """Take over keys with values, scores and state; keys that are here get the dump's."""
        keys, scores = dumped["keys"], dumped["scores"]
        updates, lookups, buckets = dumped["counts"].tolist()
        self.updates, self.lookups = max(self.updates, updates), max(self.lookups, lookups)
        while self.index.buckets < min(buckets, self.recipe.most_buckets):
            self._double()
        self.index.batch += 1
        fresh = self.index.fresh(keys, self.index.touch(keys, 0))
        if fresh is not None:
            self._make_room(len(fresh.keys))
            self._insert(fresh, torch.zeros_like(fresh.keys))
        slots = self.index.find(keys)
        self.index.scores[slots[slots >= 0]] = scores[slots >= 0]
        if self.recipe.scoring == "timestamp" and len(scores):
            self._time = max(self._time, int(scores.max()))
        state = [dumped[f"state.{name}"].reshape(len(keys), width) for name, width in self._state.items()]
        whole = torch.cat([dumped["values"], *state], 1).contiguous()
        self._copy(self.near, self.places(keys), whole, None, self._used, out=False)

    def _make_room(self, more: int) -> None:
        """Double the table until it is at most half full with more keys."""
        while 2 * (self.index.size + more) > self.index.capacity and self.index.buckets < self.recipe.most_buckets:
            self._double()

    def _double(self) -> None:
        """Double the buckets; rows move with their keys."""
        moved = self.index.double()
        kept = (moved >= 0).nonzero().squeeze(1)
        rows = self._new_rows(self.index.capacity, in_host=self.cache is not None)
        self._copy(self.rows, kept, rows, moved[kept], self.width, direct=True)
        if self.rows.is_pinned():
            torch.cuda.current_stream(self.device).synchronize()  # torch would give pinned memory away at once
        self.near = self.near if self.cache is not None else rows
        self.rows = rows

    def _insert(self, fresh: Fresh, scores: Tensor) -> None:
        """Insert new keys, and write their first rows."""
        found = self.index.insert(fresh.keys, scores)
        if self.cache is not None:
            self.cache.remove(found.gone)
        self._launch(
            "start_rows", len(fresh.keys), self.width,
            self.rows, self.rows, torch.where(found.slots < 0, NOWHERE, found.slots), fresh.keys, len(fresh.keys),
            self.recipe.seed, self._first,
            width=self.width, dim=self.recipe.dim, kind=_KINDS[self.recipe.initial], tiered=False,
        )  # fmt: skip

    def _fetch(self, cache: BucketIndex, keys: Tensor) -> None:
        """Bring the rows of keys to the device, and write those back that make room for them."""
        cache.batch += 1
        there = keys[self.index.find(keys) >= 0]
        fresh = cache.fresh(there, cache.touch(there, cache.batch))
        if fresh is None:
            return
        found = cache.insert(fresh.keys, torch.full_like(fresh.keys, cache.batch))
        self._write_back(found.freed, found.gone)
        got = found.slots >= 0
        slots = self.index.find(fresh.keys[got])
        self._copy(self.near, found.slots[got], self.rows, slots, self.width, out=False, direct=True)

    def _write_back(self, near: Tensor, keys: Tensor) -> None:
        """Copy rows of the device to those of the host."""
        self._copy(self.near, near, self.rows, self.index.find(keys), self.width, direct=True)

    def _in_pieces(self, rows: Tensor, order: Tensor, starts: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sum long runs of rows until none is long; return the sums, and where each run's are: none of a short one."""
        piece_starts, piece_counts = torch.zeros_like(starts), torch.zeros_like(counts)
        long = (counts > _PIECE).nonzero().squeeze(1)
        source, ordered, starts, counts = rows, True, starts[long], counts[long]
        while len(long) and (ordered or int(counts.max()) > _PIECE):
            pieces = (counts + _PIECE - 1) // _PIECE
            first = pieces.cumsum(0) - pieces
            run = torch.arange(len(counts), device=self.device).repeat_interleave(pieces)
            done = (torch.arange(len(run), device=self.device) - first[run]) * _PIECE
            by = order if ordered else None
            source = self._sums(source, by, starts[run] + done, (counts[run] - done).clamp_max(_PIECE))
            ordered, starts, counts = False, first, pieces
        piece_starts[long], piece_counts[long] = starts, counts
        return source, piece_starts, piece_counts

    def _longest(self, counts: Tensor) -> int:
        """Return a bound of short runs for the interpreter, or 0 where each block finds its own."""
        return 0 if self.device.type == "cuda" or not len(counts) else min(int(counts.max()), _PIECE) or 1

    def _sums(self, rows: Tensor, order: Tensor | None, starts: Tensor, counts: Tensor) -> Tensor:
        """Return the sum of each run of rows, or of a run of `order`, which names rows."""
        sums = torch.empty(len(starts), self.recipe.dim, device=self.device)
        self._launch(
            "sum_runs", len(starts), self.recipe.dim,
            rows, starts if order is None else order, starts, counts, sums, len(starts),
            dim=self.recipe.dim, ordered=order is not None, longest=self._longest(counts),
        )  # fmt: skip
        return sums

    def _copy(
        self, near: Tensor, places: Tensor, other: Tensor, at: Tensor | None, width: int, *,
        out: bool = True, direct: bool = False,
    ) -> None:  # fmt: skip
        """Copy the first `width` numbers of rows at places to rows `at` of another tensor, or from there.

        Args:
            at: None for the order in which they come.
            direct: places are rows of `near`, also if there is a cache.
        """
        self._launch(
            "copy_rows", len(places), width,
            near, self.rows, places, other, places if at is None else at, len(places),
            width=self.width, dim=width, stride=other.shape[1], out=out, listed=at is not None,
            tiered=self.cache is not None and not direct,
        )  # fmt: skip

    def _launch(self, name: str, rows: int, numbers: int, *arguments: Any, **constants: Any) -> None:
        block, warps = ROWS if self.device.type == "cuda" else (triton.next_power_of_2(min(rows, 256) or 1), 4)
        columns = triton.next_power_of_2(numbers)
        launch(
            name,
            self.device,
            triton.cdiv(rows, block),
            *arguments,
            **constants,
            block=block,
            columns=columns,
            warps=warps,
        )

    def _new_rows(self, slots: int, *, in_host: bool = False) -> Tensor:
        if in_host:
            return torch.empty(slots, self.width, pin_memory=self.device.type == "cuda")
        return torch.empty(slots, self.width, device=self.device)


class _Rows(torch.autograd.Function):
    """Rows of a table; the backward pass is the optimizer's step."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, table: DynamicTable, keys: Tensor, places: Tensor) -> Tensor:  # type: ignore[override]
        """Read rows."""
        ctx.table, ctx.version = table, table.version()
        ctx.save_for_backward(keys, places)
        return table.gather(places, table.recipe.dim)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Update rows, wherever they are by now."""
        keys, places = ctx.saved_tensors
        ctx.table.update(keys, gradients, places if ctx.version == ctx.table.version() else None)
        return None, None, None, None
