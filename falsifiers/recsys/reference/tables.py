"""Our tables as the falsifiers ask for them."""

from __future__ import annotations

from falsifiers.recsys.dynamic_tables import Recipe, Table
from falsifiers.recsys.reference.dynamic_table import DynamicTable
from falsifiers.recsys.reference.sharded_table import ShardedTable
from harness import Setting


class TritonTables:
    """Dynamic embedding tables in Triton."""

    kind: type[DynamicTable] = DynamicTable
    """What a table is made by."""

    def __init__(self, setting: Setting) -> None: ...

    def table(self, recipe: Recipe, device: str) -> Table:
        """Return an empty table."""
        return self.kind(recipe, device)

    def sharded(self, recipe: Recipe, device: str) -> Table:
        """Return this rank's part of a table."""
        return ShardedTable(self.kind(recipe, device))
