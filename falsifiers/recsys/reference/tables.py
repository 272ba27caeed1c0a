"""The Triton tables for the falsifiers."""

from falsifiers.recsys.dynamic_tables import Recipe, Table
from falsifiers.recsys.reference.dynamic_table import DynamicTable
from falsifiers.recsys.reference.sharded_table import ShardedTable
from harness import Setting


class TritonTables:
    """Dynamic embedding tables in Triton."""

    kind: type[DynamicTable] = DynamicTable
    """The class of a table."""

    def __init__(self, setting: Setting) -> None: ...

    def table(self, recipe: Recipe, device: str) -> Table:
        return self.kind(recipe, device)

    def sharded(self, recipe: Recipe, device: str) -> Table:
        return ShardedTable(self.kind(recipe, device))
