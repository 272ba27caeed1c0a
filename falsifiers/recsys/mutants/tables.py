"""Dynamic embedding tables with one known defect each, in lookups, gradients, the cache, or between ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from falsifiers.recsys.reference.bucket_index import Touched
from falsifiers.recsys.reference.dynamic_table import Batch, DynamicTable
from falsifiers.recsys.reference.key_groups import KeyGroups, grouped
from falsifiers.recsys.reference.sharded_table import ShardedTable
from falsifiers.recsys.reference.tables import TritonTables

__all__ = [
    "CacheNotWrittenBack", "DuplicatesApart", "DuplicatesInsertedTwice", "EvaluationInserts", "EvaluationIsUse",
    "EvictedStaysCached", "KeysOf32Bits", "MinusOneIsFree", "OthersOccurrencesLost", "RefusedGetsARow",
    "TimeForFrequency",
]  # fmt: skip


class EvaluationInserts(TritonTables):
    """A lookup without training inserts keys."""

    class kind(DynamicTable):  # noqa: N801
        """Trains."""

        def evaluate(self, keys: Tensor) -> Tensor:
            """Touch, whatever for."""
            return self.spread(self.touch(keys, 0))


class EvaluationIsUse(TritonTables):
    """A lookup without training sets scores."""

    class kind(DynamicTable):  # noqa: N801
        """Counts evaluations."""

        def evaluate(self, keys: Tensor) -> Tensor:
            """Touch what is there."""
            self.index.touch(grouped(keys), self.score(0))
            return super().evaluate(keys)


class RefusedGetsARow(TritonTables):
    """A key that finds no slot gets the row of another one."""

    class kind(DynamicTable):  # noqa: N801
        """Shows the first row of the table."""

        def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
            """Put those without a place at the first one."""
            batch = super().touch(keys, score, weights)
            batch.places.clamp_min_(0)
            return batch


class DuplicatesApart(TritonTables):
    """The last gradient of a key is taken for the sum."""

    class kind(DynamicTable):  # noqa: N801
        """Overwrites."""

        def update(self, batch: Batch, gradients: Tensor) -> None:
            """Clear all gradients of a key but the last."""
            ends = batch.of.starts[1 : batch.of.number() + 1].long()
            last = batch.of.items[ends - 1]
            super().update(batch, torch.zeros_like(gradients).index_copy_(0, last, gradients[last]))


class DuplicatesInsertedTwice(TritonTables):
    """Equal new keys of a batch get a slot each."""

    class kind(DynamicTable):  # noqa: N801
        """Joins no new keys."""

        def grouped(self, keys: Tensor, weights: Tensor | None) -> KeyGroups:
            """Make a group of every new item."""
            of = super().grouped(keys, weights)
            by_group = keys[of.items]
            apart = self.index.find(by_group) < 0
            heads = apart | (of.groups.diff(prepend=of.groups.new_zeros(1)) > 0)
            groups = heads.cumsum(0, dtype=torch.int32)
            starts = torch.cat([heads.nonzero().squeeze(1), torch.full_like(by_group[:1], len(keys))]).int()
            spare = starts.new_zeros(len(keys) + 1 - len(starts))
            distinct = torch.cat([by_group[heads], by_group[~heads]])
            return KeyGroups(distinct, groups, of.items, torch.cat([starts, spare]), of.totals, of.weighted)


class MinusOneIsFree(TritonTables):
    """The key -1 marks a free slot, and cannot be kept."""

    class kind(DynamicTable):  # noqa: N801
        """Forgets -1."""

        def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
            """Free its slot."""
            batch = super().touch(keys, score, weights)
            there = (batch.of.keys == -1) & (batch.places != -1)
            slots = self.index.find(batch.of.keys, batch.of, there)
            self.index.remove(batch.of, slots)
            if self.cache is not None:
                self.cache.remove(batch.of, self.cache.find(batch.of.keys, batch.of, there))
            batch.places[there] = -1
            return batch


class KeysOf32Bits(TritonTables):
    """Keys that are equal in their lower 32 bits are one."""

    class kind(DynamicTable):  # noqa: N801
        """Cuts."""

        def grouped(self, keys: Tensor, weights: Tensor | None) -> KeyGroups:
            """Cut in training."""
            return super().grouped(keys.int().long(), weights)

        def evaluate(self, keys: Tensor) -> Tensor:
            """Cut in evaluation."""
            return super().evaluate(keys.int().long())


class CacheNotWrittenBack(TritonTables):
    """Rows that leave the device are not copied to the host."""

    class kind(DynamicTable):  # noqa: N801
        """Forgets."""

        def _write_back(self, of: KeyGroups, near: Touched) -> None:
            """Do nothing."""


class EvictedStaysCached(TritonTables):
    """A key that is evicted keeps its row in the cache, and gets it back when it returns."""

    class kind(DynamicTable):  # noqa: N801
        """Never removes."""

        def _insert(self, of: KeyGroups, touched: Touched, score: int | None) -> None:
            """Keep what is cached."""
            if self.cache is not None:
                self.cache.remove = lambda of, slots: None  # type: ignore[method-assign]
            super()._insert(of, touched, score)


class TimeForFrequency(TritonTables):
    """Frequencies are kept where times are asked for, and times where frequencies are."""

    class kind(DynamicTable):  # noqa: N801
        """Swaps."""

        def score(self, given: int | None) -> int | None:
            """Return a time for "lfu", and count for "timestamp"."""
            if self.recipe.scoring == "timestamp":
                return None
            return self.lookups if self.recipe.scoring == "lfu" else super().score(given)


class OthersOccurrencesLost(TritonTables):
    """The owner of a key counts one occurrence for each rank, whatever it has."""

    def sharded(self, recipe, device):  # type: ignore[no-untyped-def]
        """Send ones."""

        class Table(DynamicTable):
            def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
                return super().touch(keys, score)

        return ShardedTable(Table(recipe, device))
