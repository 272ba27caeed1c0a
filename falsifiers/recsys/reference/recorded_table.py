"""A dynamic embedding table whose training lookups are CUDA graphs, so that the host makes one launch for each.

    table = RecordedTable(Recipe(dim=128, buckets=1 << 17, most_buckets=1 << 17), "cuda")
    loss(table.train(keys)).backward()

The first lookup of a size launches its kernels, the second consecutive one is recorded, and later ones replay the
record. This needs a table of its largest size and without a cache; else lookups launch as in `DynamicTable`.

Every replay writes the inputs of the backward pass into the same memory. So a batch's backward pass must come before
the next lookup of its size; else it raises a RuntimeError.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.reference.bucket_index import KEYS
from falsifiers.recsys.reference.dynamic_table import Batch, DynamicTable
from falsifiers.recsys.reference.key_groups import KeyGroups, grouped
from falsifiers.recsys.reference.recorded_kernels import insert_recorded, start_recorded, touch_recorded
from falsifiers.recsys.reference.table_launch import blocks_of, launch, launch_rows, power_from
from falsifiers.recsys.reference.tables import TritonTables

_INITIALS = ("uniform", "normal", "constant")


@dataclass
class Record:
    """The last training lookup, for replays with the same size.

    Attributes:
        keys: [n] int64, which the next lookup overwrites.
        of, places: the results of the lookup.
        graph: the CUDA graph; None before the second lookup, and on a CPU.
        version: the version of the table for which the record is valid.
    """

    keys: Tensor
    of: KeyGroups
    places: Tensor
    version: int
    graph: torch.cuda.CUDAGraph | None = None


@dataclass(frozen=True)
class _RecordedBatch(Batch):
    record: Record


class RecordedTable(DynamicTable):
    """A table that replays lookups of one size."""

    def __init__(self, recipe: Recipe, device: str | torch.device) -> None:
        super().__init__(recipe, device)
        self._numbers = torch.zeros(2, dtype=torch.int64, device=self.device)
        self._batch, self._score = self._numbers.unbind()
        self._record: Record | None = None

    def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
        """As `DynamicTable`, by a replay if possible."""
        if weights is not None or self.cache is not None or self.index.buckets < self.recipe.most_buckets:
            return super().touch(keys, score, weights)
        self.lookups += 1
        self.index.batch += 1
        self._version += 1
        now = self.score(score)
        self._batch.fill_(self.index.batch)
        self._score.fill_(now or 0)
        record = self._record
        if record is None or len(record.keys) != len(keys):
            keys = keys.clone()
            record = self._record = Record(keys, *self._find(keys, counted=now is None), self._version)
        else:
            record.keys.copy_(keys)
            if record.graph is None:
                self._repeat(record, counted=now is None)
            else:
                record.graph.replay()
            record.version = self._version
        return _RecordedBatch(record.of, record.places, self._version, record)

    def update(self, batch: Batch, gradients: Tensor) -> None:
        """Make an optimizer's step, if the batch is not overwritten."""
        if isinstance(batch, _RecordedBatch) and batch.version != batch.record.version:
            raise RuntimeError("a later lookup has overwritten this batch: make its backward pass before that")
        super().update(batch, gradients)

    def _repeat(self, record: Record, *, counted: bool) -> None:
        """Repeat a lookup with a record's keys, and record it on a GPU."""
        if self.device.type != "cuda":
            record.of, record.places = self._find(record.keys, counted=counted)
            return
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            record.of, record.places = self._find(record.keys, counted=counted)
        record.graph = graph
        graph.replay()

    def _find(self, keys: Tensor, *, counted: bool) -> tuple[KeyGroups, Tensor]:
        """Group keys, find or insert them, and write first rows; return the groups, and where their rows are."""
        index, recipe, of, n = self.index, self.recipe, grouped(keys), len(keys)
        slots, gone, fresh = torch.empty_like(keys), torch.empty_like(keys), torch.empty_like(keys, dtype=torch.int8)
        block, warps = KEYS if self.device.type == "cuda" else (power_from(min(n, 256)), 4)
        launch(
            touch_recorded, self.device, blocks_of(n, block),
            of.keys, of.groups, n, slots, fresh, of.starts, of.totals,
            index.digests, index.keys, index.scores, index.batches, index.newest, index.buckets, self._numbers,
            counted=counted, block=block, warps=warps,
        )  # fmt: skip
        groups = 64
        launch(
            insert_recorded, self.device, blocks_of(n, groups),
            of.keys, of.groups, n, slots, fresh, gone, of.starts, of.totals,
            index.digests, index.keys, index.scores, index.batches, index.number, index.newest, index.buckets,
            self._numbers,
            counted=counted, block=groups, chunk=groups // 2, warps=8,
        )  # fmt: skip
        launch_rows(
            start_recorded, self.device, n, self.width,
            self.rows, slots, fresh, of.keys, of.groups, index.newest, n, self._numbers, recipe.seed, self._first,
            width=self.width, dim=recipe.dim, kind=_INITIALS.index(recipe.initial), parts=8,
        )  # fmt: skip
        return of, slots


class RecordedTables(TritonTables):
    """Tables that replay lookups."""

    kind = RecordedTable
