"""Dynamic embedding tables with one known defect each."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.recsys.reference.bucket_index import SLOTS, BucketIndex, Fresh, Inserted
from falsifiers.recsys.reference.dynamic_table import DynamicTable
from falsifiers.recsys.reference.sharded_table import ShardedTable
from falsifiers.recsys.reference.tables import TritonTables

__all__ = [
    "AnotherKeysRow", "BatchNotKept", "CacheNotWrittenBack", "CachedNotDumped", "CountsLost", "DoublesEarly",
    "DoublesLate", "DumpedKeysOf32Bits", "DuplicatesApart", "DuplicatesInsertedTwice", "EvaluationInserts",
    "EvaluationIsUse", "EvictedStaysCached", "EvictsAtRandom", "EvictsLargest", "HighBitsForgotten", "KeysOf32Bits",
    "LoadsOnlyNew", "MinusOneIsFree", "OthersOccurrencesLost", "RefusedGetsARow", "ScoresLostOnRehash",
    "ScoresOfUnsigned", "ScoresOmitted", "SinceAfter", "StateLostOnRehash", "StateOmitted", "TimeForFrequency",
    "WrongBucket",
]  # fmt: skip


class _Index(TritonTables):
    """Tables with another index."""

    index: type[BucketIndex]

    def table(self, recipe, device):  # type: ignore[no-untyped-def]
        """Exchange the index."""
        table = super().table(recipe, device)
        table.index = self.index(recipe.buckets, table.device)  # type: ignore[attr-defined]
        return table


class EvaluationInserts(TritonTables):
    """A lookup without training inserts keys."""

    class kind(DynamicTable):  # noqa: N801
        """Trains."""

        def evaluate(self, keys: Tensor) -> Tensor:
            """Touch, whatever for."""
            return self.gather(self.touch(keys, 0), self.recipe.dim)


class EvaluationIsUse(TritonTables):
    """A lookup without training sets scores."""

    class kind(DynamicTable):  # noqa: N801
        """Counts evaluations."""

        def evaluate(self, keys: Tensor) -> Tensor:
            """Touch what is there."""
            self.index.touch(keys, self.score(0))
            return super().evaluate(keys)


class RefusedGetsARow(TritonTables):
    """A key that finds no slot gets the row of a new key, which is kept nowhere."""

    class kind(DynamicTable):  # noqa: N801
        """Shows the first row of the table."""

        def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Tensor:
            """Put those without a place at the first one."""
            return super().touch(keys, score, weights).clamp_min(0)


class DuplicatesApart(TritonTables):
    """The last gradient of a key is taken for the sum."""

    class kind(DynamicTable):  # noqa: N801
        """Overwrites."""

        def update(self, keys: Tensor, gradients: Tensor, places: Tensor | None = None) -> None:
            """Take the last of equal keys."""
            distinct, of = keys.unique(return_inverse=True)
            last = torch.zeros_like(distinct).scatter_reduce_(
                0, of, torch.arange(len(keys), device=keys.device), "amax"
            )
            super().update(distinct, gradients[last])


class MinusOneIsFree(TritonTables):
    """The key -1 marks a free slot, and cannot be kept."""

    class kind(DynamicTable):  # noqa: N801
        """Leaves -1 out."""

        def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Tensor:
            """Touch the others."""
            weights = None if weights is None else weights[keys != -1]
            super().touch(keys[keys != -1], score, weights)
            return self.places(keys)


class KeysOf32Bits(TritonTables):
    """Keys that are equal in their lower 32 bits are one."""

    class kind(DynamicTable):  # noqa: N801
        """Cuts."""

        def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Tensor:
            """Cut in training."""
            return super().touch(keys.int().long(), score, weights)

        def evaluate(self, keys: Tensor) -> Tensor:
            """Cut in evaluation."""
            return super().evaluate(keys.int().long())


class CacheNotWrittenBack(TritonTables):
    """Rows that leave the device are not copied to the host."""

    class kind(DynamicTable):  # noqa: N801
        """Forgets."""

        def _write_back(self, near: Tensor, keys: Tensor) -> None:
            """Do nothing."""


class EvictedStaysCached(TritonTables):
    """A key that is evicted keeps its row in the cache, and gets it back when it returns."""

    class kind(DynamicTable):  # noqa: N801
        """Never removes."""

        def _insert(self, fresh: Fresh, scores: Tensor) -> None:
            """Keep what is cached."""
            if self.cache is not None:
                self.cache.remove = lambda keys: None  # type: ignore[method-assign]
            super()._insert(fresh, scores)

        def _write_back(self, near: Tensor, keys: Tensor) -> None:
            """Write rows of which the host has a place."""
            there = self.index.find(keys) >= 0
            super()._write_back(near[there], keys[there])


class AnotherKeysRow(_Index):
    """A key that is not in its bucket is taken for the first one there."""

    class index(BucketIndex):  # noqa: N801
        """Compares nothing."""

        def _find(self, keys: Tensor, **how) -> Tensor:  # type: ignore[no-untyped-def]
            """Take what is there."""
            slots = super()._find(keys, **how)
            first = (self.hashes(keys) & (self.buckets - 1)) * SLOTS
            return torch.where((slots < 0) & (self.digests[first] > 0), first, slots)


class DuplicatesInsertedTwice(_Index):
    """Equal new keys of a batch get a slot each."""

    class index(BucketIndex):  # noqa: N801
        """Joins nothing."""

        def fresh(self, keys: Tensor, slots: Tensor, weights: Tensor | None = None) -> Fresh | None:
            """Take every occurrence for a key."""
            items = (slots < 0).nonzero().squeeze(1)
            if not len(items):
                return None
            order = keys[items].sort(stable=True)
            return Fresh(order.values, torch.ones_like(items), items, order.indices.argsort())


class BatchNotKept(_Index):
    """New keys may evict those of their own batch."""

    class index(BucketIndex):  # noqa: N801
        """Protects none."""

        def insert(self, keys: Tensor, scores: Tensor) -> Inserted:
            """Insert as if in a later batch."""
            self.batch += 1
            return super().insert(keys, scores)


class _Scored(BucketIndex):
    """Evicts by other scores."""

    def other(self, scores: Tensor) -> Tensor:
        """Return them."""
        raise NotImplementedError

    def insert(self, keys: Tensor, scores: Tensor) -> Inserted:
        """Exchange scores while keys are inserted."""
        kept = self.scores.clone()
        self.scores.copy_(self.other(kept))
        inserted = super().insert(keys, scores)
        there = inserted.slots[inserted.slots >= 0]
        kept[there] = self.scores[there]
        self.scores.copy_(kept)
        return inserted


class EvictsLargest(_Index):
    """The key with the largest score leaves."""

    class index(_Scored):  # noqa: N801
        """Turns the order round."""

        def other(self, scores: Tensor) -> Tensor:
            """Return -1 - score, which is no overflow."""
            return ~scores


class EvictsAtRandom(_Index):
    """Any key leaves."""

    class index(_Scored):  # noqa: N801
        """Throws dice."""

        def other(self, scores: Tensor) -> Tensor:
            """Return random scores."""
            return torch.randint_like(scores, 1 << 40)


class ScoresOfUnsigned(_Index):
    """Scores are compared as unsigned numbers: a negative one is large."""

    class index(_Scored):  # noqa: N801
        """Takes the sign for a number."""

        def other(self, scores: Tensor) -> Tensor:
            """Flip the highest bit."""
            return scores ^ -(1 << 63)


class WrongBucket(_Index):
    """A key that finds its bucket full goes to the next one, where no lookup finds it."""

    class index(BucketIndex):  # noqa: N801
        """Overflows."""

        def insert(self, keys: Tensor, scores: Tensor) -> Inserted:
            """Give them the hash of the next bucket."""
            full = (self.digests.view(-1, SLOTS) > 0).all(dim=1)
            hashes, buckets = super().hashes, self.buckets
            self.hashes = lambda some: hashes(some) + full[hashes(some) & (buckets - 1)].long()  # type: ignore[method-assign]
            inserted = super().insert(keys, scores)
            del self.hashes
            return inserted


class TimeForFrequency(TritonTables):
    """Frequencies are kept where times are asked for, and times where frequencies are."""

    class kind(DynamicTable):  # noqa: N801
        """Swaps."""

        def score(self, given: int | None) -> int | None:
            """Return a time for "lfu", and count for "timestamp"."""
            if self.recipe.scoring == "timestamp":
                return None
            return self.lookups if self.recipe.scoring == "lfu" else super().score(given)


class DoublesEarly(TritonTables):
    """A table that becomes exactly half full doubles."""

    class kind(DynamicTable):  # noqa: N801
        """Takes at least for more than."""

        def _make_room(self, more: int) -> None:
            """Ask for one more."""
            super()._make_room(more + 1)


class DoublesLate(TritonTables):
    """A table doubles when it was more than half full before."""

    class kind(DynamicTable):  # noqa: N801
        """Looks back."""

        def _make_room(self, more: int) -> None:
            """Leave the new keys out."""
            super()._make_room(0)


class StateLostOnRehash(TritonTables):
    """The optimizer's state begins anew when the table doubles."""

    class kind(DynamicTable):  # noqa: N801
        """Moves values only."""

        def _double(self) -> None:
            """Clear what is beside the values."""
            super()._double()
            self.rows[:, self.recipe.dim :] = 0.0
            self.near[:, self.recipe.dim :] = 0.0


class ScoresLostOnRehash(_Index):
    """Scores begin anew when the table doubles."""

    class index(BucketIndex):  # noqa: N801
        """Moves keys only."""

        def double(self) -> Tensor:
            """Clear scores."""
            moved = super().double()
            self.scores.zero_()
            return moved


class HighBitsForgotten(TritonTables):
    """Keys whose bucket is new are not moved when the table doubles."""

    class kind(DynamicTable):  # noqa: N801
        """Moves half of the keys."""

        def _double(self) -> None:
            """Remove those of the upper half."""
            before = self.index.buckets
            super()._double()
            slots = self.index.occupied()
            self.index.remove(self.index.keys[slots[slots >= before * SLOTS]])


class _Dumped(DynamicTable):
    """Writes and takes other dumps."""

    def other(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what is written."""
        raise NotImplementedError

    def dumped(self, at_least: int | None = None) -> dict[str, Tensor]:
        """Exchange it."""
        return self.other(super().dumped(at_least))

    def take(self, dumped: Mapping[str, Tensor]) -> None:
        """Take 0 for what is not there."""
        zeros = torch.zeros_like(dumped["values"])
        states = {f"state.{name}": zeros[:, :width] for name, width in self._state.items()}
        super().take({"scores": torch.zeros_like(dumped["keys"]), **states, **dumped})


class StateOmitted(TritonTables):
    """A dump has no optimizer state; a loaded table begins with 0."""

    class kind(_Dumped):  # noqa: N801
        """Leaves it out."""

        def other(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            """Leave state out."""
            return {name: one for name, one in tensors.items() if not name.startswith("state.")}


class ScoresOmitted(TritonTables):
    """A dump has 0 for every score."""

    class kind(_Dumped):  # noqa: N801
        """Leaves them out."""

        def other(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            """Clear scores."""
            return {**tensors, "scores": torch.zeros_like(tensors["scores"])}


class DumpedKeysOf32Bits(TritonTables):
    """A dump has the lower 32 bits of keys."""

    class kind(_Dumped):  # noqa: N801
        """Cuts."""

        def other(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            """Cut keys."""
            return {**tensors, "keys": tensors["keys"].int().long()}


class CountsLost(TritonTables):
    """A dump has no count of updates, so Adam's moments of a loaded table are multiplied as in the first step."""

    class kind(_Dumped):  # noqa: N801
        """Begins anew."""

        def other(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            """Clear updates and lookups."""
            return {**tensors, "counts": tensors["counts"] * torch.tensor([0, 0, 1])}


class SinceAfter(TritonTables):
    """A dump since a score leaves out the keys that have exactly this score."""

    class kind(DynamicTable):  # noqa: N801
        """Takes more than for at least."""

        def dumped(self, at_least: int | None = None) -> dict[str, Tensor]:
            """Ask for one more."""
            return super().dumped(None if at_least is None else at_least + 1)


class CachedNotDumped(TritonTables):
    """A dump has the host's rows, also where the device has newer ones."""

    class kind(DynamicTable):  # noqa: N801
        """Looks at the host only."""

        def dumped(self, at_least: int | None = None) -> dict[str, Tensor]:
            """Empty the cache meanwhile."""
            if self.cache is None:
                return super().dumped(at_least)
            kept, self.cache.digests = self.cache.digests, torch.zeros_like(self.cache.digests)
            tensors = super().dumped(at_least)
            self.cache.digests = kept
            return tensors


class LoadsOnlyNew(TritonTables):
    """Keys that are there already keep what they have when a dump is loaded."""

    class kind(DynamicTable):  # noqa: N801
        """Never overwrites."""

        def take(self, dumped: Mapping[str, Tensor]) -> None:
            """Take the others."""
            new = self.index.find(dumped["keys"]) < 0
            super().take({name: one if name == "counts" else one[new] for name, one in dumped.items()})


class OthersOccurrencesLost(TritonTables):
    """The owner of a key counts one occurrence for each rank, whatever it has."""

    def sharded(self, recipe, device):  # type: ignore[no-untyped-def]
        """Send ones."""

        class Table(DynamicTable):
            def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Tensor:
                return super().touch(keys, score)

        return ShardedTable(Table(recipe, device))
