"""Dynamic embedding tables whose recorded lookups repeat what should be new each time."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from falsifiers.recsys.reference.dynamic_table import Batch
from falsifiers.recsys.reference.recorded_table import Record, RecordedTable
from falsifiers.recsys.reference.tables import TritonTables

__all__ = ["BatchRecorded", "CacheNotRecorded", "KeysOverwritten", "KeysRecorded", "ScoreRecorded"]


class BatchRecorded(TritonTables):
    """The number of the batch is part of the record, so keys of all batches with it count as those of the present."""

    class kind(RecordedTable):  # noqa: N801
        """Numbers batches once."""

        first = 0

        def note(self, batch: int, score: int | None) -> None:
            """Keep the first number."""
            self.first = batch if self.index.batch == 1 else self.first
            super().note(self.first, score)


class CacheNotRecorded(TritonTables):
    """A record has the rows of the host's memory, though newer ones are on the device."""

    class kind(RecordedTable):  # noqa: N801
        """Forgets its cache when it records."""

        def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
            """Look up without it, once the table has its most buckets."""
            cache = self.cache
            self.cache = None if self.index.buckets == self.recipe.most_buckets else cache
            batch = super().touch(keys, score, weights)
            if cache is not None and self.cache is None:
                batch = replace(batch, places=torch.where(batch.places < 0, -1, -2 - batch.places))
            self.cache = cache
            return batch


class ScoreRecorded(TritonTables):
    """The score is part of the record."""

    class kind(RecordedTable):  # noqa: N801
        """Scores once."""

        first: int | None = None

        def note(self, batch: int, score: int | None) -> None:
            """Keep the first one."""
            self.first = score if self.index.batch == 1 else self.first
            super().note(batch, self.first)


class KeysRecorded(TritonTables):
    """The keys are part of the record."""

    class kind(RecordedTable):  # noqa: N801
        """Asks once."""

        def ask(self, record: Record, keys: Tensor) -> None:
            """Leave the record as it is."""


class KeysOverwritten(TritonTables):
    """The record is about the caller's tensor of keys, which later keys overwrite."""

    class kind(RecordedTable):  # noqa: N801
        """Copies no keys at first."""

        def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
            """Keep the tensor of the first lookup of a size."""
            before, batch = self._record, super().touch(keys, score, weights)
            if self._record is not None and self._record is not before:
                self._record.keys = keys
            return batch
