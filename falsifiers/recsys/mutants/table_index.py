"""Indexes of dynamic embedding tables with one known defect each: which key has which slot, and which one leaves."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from falsifiers.recsys.reference.bucket_index import SLOTS, BucketIndex, Touched
from falsifiers.recsys.reference.dynamic_table import DynamicTable
from falsifiers.recsys.reference.key_groups import KeyGroups, hashes
from falsifiers.recsys.reference.tables import TritonTables

__all__ = [
    "AnotherKeysRow", "BatchNotKept", "DoublesEarly", "DoublesLate", "EvictsAtRandom", "EvictsLargest",
    "HighBitsForgotten", "ScoresLostOnRehash", "ScoresOfUnsigned", "StateLostOnRehash", "WrongBucket",
]  # fmt: skip


class _Index(TritonTables):
    """Tables with another index."""

    index: type[BucketIndex]

    def table(self, recipe, device):  # type: ignore[no-untyped-def]
        """Exchange the index."""
        table = super().table(recipe, device)
        table.index = self.index(recipe.buckets, table.device)  # type: ignore[attr-defined]
        return table


class AnotherKeysRow(_Index):
    """A key that is not in its bucket is taken for the first one there."""

    class index(BucketIndex):  # noqa: N801
        """Compares nothing."""

        def find(self, keys: Tensor, groups: KeyGroups | None = None, among: Tensor | None = None) -> Tensor:
            """Take what is there."""
            return self._taken(keys, super().find(keys, groups, among))

        def touch(self, of: KeyGroups, score: int | None, among: Tensor | None = None) -> Touched:
            """Take it in training, too."""
            touched = super().touch(of, score, among)
            slots = self._taken(of.keys, touched.slots)
            touched.fresh[slots >= 0] = 0
            return replace(touched, slots=slots)

        def _taken(self, keys: Tensor, slots: Tensor) -> Tensor:
            first = (hashes(keys) & (self.buckets - 1)) * SLOTS
            return torch.where((slots < 0) & (self.digests[first] > 0), first, slots)


class BatchNotKept(_Index):
    """New keys may evict those of their own batch."""

    class index(BucketIndex):  # noqa: N801
        """Protects none."""

        def insert(self, of: KeyGroups, touched: Touched, score: int | None) -> None:
            """Insert as if in a later batch."""
            self.batch += 1
            self.newest.add_(1)
            super().insert(of, touched, score)


class _Scored(BucketIndex):
    """Evicts by other scores."""

    def other(self, scores: Tensor) -> Tensor:
        """Return them."""
        raise NotImplementedError

    def insert(self, of: KeyGroups, touched: Touched, score: int | None) -> None:
        """Exchange scores while keys are inserted."""
        kept = self.scores.clone()
        self.scores.copy_(self.other(kept))
        super().insert(of, touched, score)
        number = of.number()
        slots = touched.slots[:number][touched.fresh[:number] > 0]
        there = slots[slots >= 0]
        kept[there] = self.scores[there]
        self.scores.copy_(kept)


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

        def insert(self, of: KeyGroups, touched: Touched, score: int | None) -> None:
            """Insert some keys into the next bucket, the others into theirs."""
            full = (self.digests.view(-1, SLOTS) > 0).all(dim=1)
            number = of.number()
            new = (touched.fresh[:number] > 0).nonzero().squeeze(1)
            buckets = hashes(of.keys[new]) & (self.buckets - 1)
            over = new[full[buckets]]
            touched.fresh[over] = 0
            super().insert(of, touched, score)
            slots = ((hashes(of.keys[over]) + 1) & (self.buckets - 1)) * SLOTS + torch.arange(
                len(over), device=over.device
            ) % SLOTS
            self.digests[slots] = 1
            self.keys[slots] = of.keys[over]


class DoublesEarly(TritonTables):
    """A table that becomes exactly half full doubles."""

    class kind(DynamicTable):  # noqa: N801
        """Takes at least for more than."""

        def _make_room(self, known: int, more: int) -> None:
            """Ask for one more."""
            super()._make_room(known, more + 1)


class DoublesLate(TritonTables):
    """A table doubles when it was more than half full before."""

    class kind(DynamicTable):  # noqa: N801
        """Looks back."""

        def _make_room(self, known: int, more: int) -> None:
            """Leave the new keys out."""
            super()._make_room(known, 0)


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
            self.index.digests[before * SLOTS :] = 0
            self.index.number.copy_((self.index.digests > 0).sum())
