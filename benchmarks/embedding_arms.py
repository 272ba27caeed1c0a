"""The arms of `benchmarks.dynamic_embedding`: our tables and those of others, with equal rows and Zipf keys."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.reference.dynamic_table import DynamicTable
from falsifiers.recsys.reference.recorded_table import RecordedTable
from harness.authoring.timing import Timing

RATE = 0.05
BATCHES = 8
"""Different ones, in turn."""

Arm = Callable[[], object]


class Keys:
    """Batches of Zipf's keys.

    Attributes:
        names: [rows], the 64-bit key of each row number.
        rows: [batches, batch], row numbers.
    """

    def __init__(self, rows: int, batch: int, exponent: float, device: str, seed: int = 0) -> None:
        """Draw them; the most frequent rows are spread over all numbers."""
        generator = torch.Generator().manual_seed(seed)
        shares = torch.rand(BATCHES, batch, generator=generator, dtype=torch.float64)
        ranks = ((rows ** (1.0 - exponent) - 1.0) * shares + 1.0) ** (1.0 / (1.0 - exponent))
        spread = torch.randperm(rows, generator=torch.Generator().manual_seed(7))
        self.rows = spread[ranks.long().clamp(1, rows) - 1].to(device)
        self.names = self.named(torch.arange(rows, device=device))

    @staticmethod
    def named(numbers: Tensor) -> Tensor:
        """Return a 64-bit key for each number. All keys differ."""
        return numbers * 0x1E3779B97F4A7C15 + 0x7F4A7C15


class Tables:
    """All implementations, with equal rows.

    Attributes:
        launched: our table, which grew while it was filled.
        ours: our table that repeats recorded lookups.
        host: our table with its rows on the host, behind a cache.
        filled: the time of the filling.
    """

    def __init__(self, rows: int, dim: int, optimizer: str, device: str) -> None:
        """Fill our table with all keys, and copy its rows to the others."""
        self.optimizer, self.device = optimizer, device
        recipe = recipe_for(rows, dim, optimizer)
        names = Keys.named(torch.arange(rows, device=device))
        self.launched, self.filled = filled(DynamicTable(recipe, device), names)
        self.all = names
        recipe = replace(recipe, buckets=recipe.most_buckets)
        self.ours, _ = filled(RecordedTable(recipe, device), names)
        self.host, _ = filled(DynamicTable(replace(recipe, cached_buckets=recipe.buckets // 16), device), names)
        self.bag = nn.EmbeddingBag(rows, dim, mode="sum", sparse=True, device=device)
        with torch.no_grad():
            for chunk, part in zip(names.split(1 << 20), self.bag.weight.split(1 << 20), strict=True):
                part.copy_(self.ours.evaluate(chunk))
        kinds = {"sgd": torch.optim.SGD, "rowwise_adagrad": torch.optim.Adagrad}
        self.step_of_bag = kinds[optimizer](self.bag.parameters(), lr=RATE)
        self.fbgemm = None
        with suppress(ImportError, OSError, RuntimeError):
            self.fbgemm = fbgemm_of(self.bag.weight, optimizer, device)

    def differences(self) -> dict[str, float]:
        """Return how far rows of the other arms are from ours. torch has no row-wise Adagrad."""
        rows = slice(0, 1 << 20)
        right = self.ours.evaluate(self.all[rows])
        found = {
            name: float((table.evaluate(self.all[rows]) - right).abs().max())
            for name, table in (("launched", self.launched), ("host", self.host))
        }
        if self.optimizer == "sgd":
            found["EmbeddingBag"] = float((self.bag.weight.detach()[rows] - right).abs().max())
        if self.fbgemm is not None:
            found["fbgemm"] = float((self.fbgemm.split_embedding_weights()[0][rows].detach() - right).abs().max())
        return found


def recipe_for(rows: int, dim: int, optimizer: str) -> Recipe:
    """Return a recipe that begins small and ends with more slots than rows."""
    most = 1
    while most * 128 * 0.8 < rows:
        most *= 2
    return Recipe(dim, max(1, most // 64), most, "step", optimizer, rate=RATE, num_embeddings=rows)  # type: ignore[arg-type]


def filled(table: DynamicTable, names: Tensor) -> tuple[DynamicTable, dict[str, float]]:
    """Give a table all keys, and return the time as text."""
    recipe = table.recipe
    synchronize()
    began = time.perf_counter()
    for chunk in names.split(1 << 20):
        table.touch(chunk)
    synchronize()
    seconds = time.perf_counter() - began
    print(
        f"filled {len(names)} keys in {seconds:.2f} s: {recipe.buckets} buckets became {table.index.buckets}, "
        f"{len(names) - table.size()} evicted or refused, {recipe.cached_buckets} buckets cached", flush=True,
    )  # fmt: skip
    return table, {"seconds": seconds, "size": table.size(), "slots": table.capacity()}


def fbgemm_of(weight: Tensor, optimizer: str, device: str) -> Any:
    """Return fbgemm's embedding of one table with these rows."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    kinds = {"sgd": EmbOptimType.EXACT_SGD, "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}
    cuda = device == "cuda"
    place = EmbeddingLocation.DEVICE if cuda else EmbeddingLocation.HOST
    where = ComputeDevice.CUDA if cuda else ComputeDevice.CPU
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [(*weight.shape, place, where)], optimizer=kinds[optimizer], learning_rate=RATE, pooling_mode=PoolingMode.SUM,
        device=torch.device(device),
    )  # fmt: skip
    module.split_embedding_weights()[0].data.copy_(weight.detach())
    return module


def lookups(tables: Tables, keys: Keys) -> dict[str, Arm]:
    """Return arms that look keys up without training."""
    named = {name: turns(keys.names[keys.rows]) for name in ("ours", "host")}
    plain = {name: turns(keys.rows) for name in ("bag", "fbgemm")}
    starts = torch.arange(keys.rows.shape[1] + 1, device=keys.rows.device)

    @torch.no_grad()
    def of_bag() -> object:
        return tables.bag(next(plain["bag"]), starts[:-1])

    @torch.no_grad()
    def of_fbgemm() -> object:
        return tables.fbgemm(next(plain["fbgemm"]), starts)

    arms: dict[str, Arm] = {
        "ours": lambda: tables.ours.evaluate(next(named["ours"])),
        "host": lambda: tables.host.evaluate(next(named["host"])),
        "EmbeddingBag": of_bag,
    }
    return arms if tables.fbgemm is None else {**arms, "fbgemm": of_fbgemm}


def updates(tables: Tables, keys: Keys, slopes: Tensor) -> dict[str, Arm]:
    """Return arms that train; all of them make equal steps."""
    named = {name: turns(keys.names[keys.rows]) for name in ("ours", "launched", "host")}
    plain = {name: turns(keys.rows) for name in ("bag", "fbgemm")}
    starts = torch.arange(keys.rows.shape[1] + 1, device=keys.rows.device)

    def of_bag() -> None:
        tables.step_of_bag.zero_grad(set_to_none=True)
        tables.bag(next(plain["bag"]), starts[:-1]).backward(slopes)
        tables.step_of_bag.step()

    arms: dict[str, Arm] = {
        "ours": lambda: tables.ours.train(next(named["ours"])).backward(slopes),
        "launched": lambda: tables.launched.train(next(named["launched"])).backward(slopes),
        "host": lambda: tables.host.train(next(named["host"])).backward(slopes),
        "EmbeddingBag": of_bag,
    }
    if tables.fbgemm is not None:
        arms["fbgemm"] = lambda: tables.fbgemm(next(plain["fbgemm"]), starts).backward(slopes)
    return arms


def turns(batches: Tensor) -> Iterator[Tensor]:
    """Yield batches for ever."""
    while True:
        yield from batches


def shown(kind: str, timing: Timing, arms: Any, to: str, batch: int) -> dict[str, Any]:
    """Print a line for each arm, and return its numbers."""
    found = {}
    for arm in arms:
        seconds, ratio = statistics.median(timing.seconds[arm]), timing.ratio(arm, to)
        found[arm] = {"ms": seconds * 1e3, "ratio": ratio.estimate, "low": ratio.low, "high": ratio.high}
        print(
            f"{kind:>8} {arm:>22} {seconds * 1e3:9.3f} ms {batch / seconds / 1e6:9.1f} M rows/s "
            f"{ratio.estimate:7.3f} ({ratio.low:.3f} to {ratio.high:.3f})", flush=True,
        )  # fmt: skip
    return found


def synchronize() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
