"""A dynamic embedding table with a defect between ranks, which on GPUs are processes that see no patch."""

from __future__ import annotations

from torch import Tensor

from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.reference.dynamic_table import Batch, DynamicTable
from falsifiers.recsys.reference.sharded_table import ShardedTable
from falsifiers.recsys.reference.tables import TritonTables


class OthersOccurrencesLost(TritonTables):
    """The owner of a key counts one occurrence for each rank, whatever it has."""

    def sharded(self, recipe: Recipe, device: str) -> ShardedTable:
        """Send ones."""
        return ShardedTable(_Unweighted(recipe, device))


class _Unweighted(DynamicTable):
    def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
        """Forget the weights."""
        return super().touch(keys, score)
