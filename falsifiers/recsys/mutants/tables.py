"""A dynamic embedding table with a defect between ranks, which are processes without patches on GPUs."""

from torch import Tensor

from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.reference.dynamic_table import Batch, DynamicTable
from falsifiers.recsys.reference.sharded_table import ShardedTable
from falsifiers.recsys.reference.tables import TritonTables


class OthersOccurrencesLost(TritonTables):
    """The owner of a key counts one occurrence per rank instead of the rank's number."""

    def sharded(self, recipe: Recipe, device: str) -> ShardedTable:
        return ShardedTable(_Unweighted(recipe, device))


class _Unweighted(DynamicTable):
    def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
        return super().touch(keys, score)
