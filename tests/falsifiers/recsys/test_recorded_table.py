"""Properties of tables that record their lookups, which no claim tests."""

from __future__ import annotations

import pytest
import torch

from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.reference.dynamic_table import DynamicTable
from falsifiers.recsys.reference.recorded_table import RecordedTable

RECIPE = Recipe(2, 1, 2, "lfu", "adam", seed=3)


def test_a_recorded_table_has_the_bits_of_a_launched_one() -> None:
    """The bits are equal while the table grows, in batches of any sizes, and if a key has three gradients."""
    tables = [kind(RECIPE, "cpu") for kind in (DynamicTable, RecordedTable)]
    for keys in (torch.arange(70), torch.arange(50, 90), torch.arange(70, 110), torch.tensor([5, -9, 5, 5])):
        rows = [table.train(keys) for table in tables]
        assert torch.equal(*rows)
        for one in rows:
            (one * torch.arange(len(keys))[:, None]).sum().backward()
    one, other = (table.dumped() for table in tables)
    assert all(torch.equal(one[name], other[name]) for name in one.keys() | other.keys())


def test_an_overwritten_batch_makes_no_step() -> None:
    """The backward pass of the last lookup of a size makes a step. That of the lookup before raises."""
    table = RecordedTable(Recipe(2, 1, 1, "step"), "cpu")
    first, second = (table.train(torch.arange(start, start + 4)) for start in (0, 2))
    with pytest.raises(RuntimeError, match="overwritten"):
        first.sum().backward()
    second.sum().backward()
    assert table.updates == 1
