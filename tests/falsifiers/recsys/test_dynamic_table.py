"""Properties of dynamic embedding tables that no claim tests, such as code for an absent GPU and long sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.oracle.dynamic_table import Model, mixed
from falsifiers.recsys.reference import key_groups, row_kernels, table_kernels
from falsifiers.recsys.reference.dynamic_table import DynamicTable
from falsifiers.recsys.reference.recorded_table import RecordedTable

KINDS = {
    "fp32": ("rate", "eps", "m_correction", "v_correction"),
    "i32": ("count", "programs", "scale", "first", "base"),
    "i64": ("buckets", "given", "batch", "seed"),
    "*fp32": ("near", "far", "source", "sums", "rows_of"),
    "*fp64": ("spread",),
    "*i32": ("groups", "starts", "owners", "out_owners"),
    "*u8": ("digests",),
    "*i8": ("fresh",),
}


@pytest.mark.parametrize(
    ("kernel", "constants"),
    [
        (table_kernels.insert_groups, {"counted": True, "weighted": True, "block": 64, "chunk": 32}),
        (
            row_kernels.update_rows,
            {"width": 384, "dim": 128, "rule": 3, "tiered": True, "piece": 32, "levels": 3, "at_once": 4, "block": 4}
            | {"columns": 128},
        ),
    ],
)
def test_the_kernels_compile_for_hopper(kernel: Any, constants: dict[str, Any]) -> None:
    """The kernels compile with and without a cache before the host's memory."""
    kinds = {name: kind for kind, names in KINDS.items() for name in names}
    types = {name: "constexpr" if name in constants else kinds.get(name, "*i64") for name in kernel.arg_names}
    source = ASTSource(kernel, types, constants)
    assert "ld.global" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]


@pytest.mark.parametrize("few", [2048, 0])
def test_a_key_with_very_many_gradients_gets_their_sum(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum is exact, with one level of pieces and with three."""
    monkeypatch.setattr(key_groups, "FEW", few)
    table = DynamicTable(Recipe(2, 1, 1, rate=1.0, initial="constant", spread=0.0), "cpu")
    keys = torch.tensor([7] * 1100 + [8])
    slopes = torch.randint(-9, 9, (1101, 2), generator=torch.Generator().manual_seed(0)).float()
    (table.train(keys) * slopes).sum().backward()
    assert torch.equal(table.evaluate(torch.tensor([7, 8])), -torch.stack([slopes[:1100].sum(0), slopes[1100]]))


def test_a_step_after_another_lookup_finds_rows_that_have_moved() -> None:
    """The table doubles between a lookup and its backward pass."""
    table = DynamicTable(Recipe(2, 1, 4, rate=1.0, initial="constant", spread=0.0), "cpu")
    rows = table.train(torch.arange(10))
    table.train(torch.arange(100, 200))
    rows.sum().backward()
    assert table.capacity() == 256
    assert torch.equal(table.evaluate(torch.arange(9, 11)), torch.tensor([[-1.0, -1.0], [0.0, 0.0]]))


def test_first_rows_are_uniform_and_follow_from_key_and_seed() -> None:
    """They are within sqrt(1 / num_embeddings), as in DynamicEmb_APIs.md, whatever the order of arrival."""

    def first(seed: int, keys: Tensor) -> Tensor:
        return DynamicTable(Recipe(64, 4, 4, num_embeddings=400, seed=seed), "cpu").train(keys).detach()

    keys = torch.arange(200)
    rows = first(3, keys)
    assert rows.abs().max() < 0.05
    assert abs(float(rows.mean())) < 0.001
    assert abs(float(rows.std()) - 0.05 / 3**0.5) < 0.0005
    assert torch.equal(first(3, keys.flip(0)).flip(0), rows)
    assert not torch.equal(first(4, keys), rows)


def test_the_hash_is_that_of_murmur3() -> None:
    """The numbers are those of the reference implementation's fmix64: 0 stays 0, and 1 has a known value."""
    assert (mixed(0), mixed(1), mixed(-1)) == (0, 0xB456BCFC34C2CB2C, 0x64B5720B4B825F21)


@pytest.mark.parametrize("buckets", [0, 3, -4])
def test_buckets_are_a_power_of_two(buckets: int) -> None:
    """Any other number is refused."""
    with pytest.raises(ValueError, match="power of two"):
        DynamicTable(Recipe(4, buckets, 4), "cpu")


def test_the_model_evicts_the_lowest_score_by_itself() -> None:
    """With one bucket and frequencies, the key that was requested once leaves, whatever its age."""
    model = Model(Recipe(1, 1, 1, "lfu"))
    model.train([*range(128), *range(1, 128)])
    model.train([999])
    assert (model.evicted, 999 in model.entries, len(model.entries)) == ({0}, True, 128)


RECIPE = Recipe(2, 1, 2, "lfu", "adam", seed=3)


def test_a_recorded_table_has_the_bits_of_a_launched_one() -> None:
    """The bits are equal while the table grows, in batches of any sizes, and if a key has three gradients."""
    tables = [kind(RECIPE, "cpu") for kind in (DynamicTable, RecordedTable)]
    for keys in (torch.arange(70), torch.arange(50, 90), torch.arange(70, 110), torch.tensor([5, -9, 5, 5])):
        rows = [table.train(keys) for table in tables]
        assert torch.equal(*rows)
        for row in rows:
            (row * torch.arange(len(keys))[:, None]).sum().backward()
    first, second = (table.dumped() for table in tables)
    assert all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


def test_an_overwritten_batch_makes_no_step() -> None:
    """The backward pass of the last lookup of a size makes a step. That of the lookup before raises."""
    table = RecordedTable(Recipe(2, 1, 1, "step"), "cpu")
    first, second = (table.train(torch.arange(start, start + 4)) for start in (0, 2))
    with pytest.raises(RuntimeError, match="overwritten"):
        first.sum().backward()
    second.sum().backward()
    assert table.updates == 1
