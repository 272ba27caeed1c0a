"""Our dynamic embedding table compared with nn.EmbeddingBag, and with fbgemm's table-batched embedding if it is there.

    python -m benchmarks.dynamic_embedding [--rows 10000000] [--dim 128] [--batches 4096 65536] [--rounds 20]
    python -m benchmarks.dynamic_embedding --ranks 2 [--rows …]

Keys are Zipf's: the r-th most frequent one has a probability of about r ** -exponent. Ours get them as random 64-bit
numbers, which the table has to find; the others get row numbers. All arms have equal rows at first, and make equal
steps in turns, in random order, in one process. The table has milliseconds (median), rows in a second, and the ratio of
the arm's time to ours with its 99 % interval. At last, rows of all arms are compared, so what is timed is right.

"lookup" is one without training. "update" is a training lookup, its backward pass and the optimizer's step, with no new
keys. "touch" is the search of a training lookup alone, for keys that are there, and for new ones, which evict. "host"
has its rows in pinned host memory and a 16th of them on the device. --sweep first times blocks for the kernels.
--profile first counts each arm's kernels and how often the host waits for the device, and how long either works.

With --ranks 2, two processes share a table, by NCCL on two GPUs, by gloo on the CPU. First they train small ones beside
a model in float64, one for each optimizer; then the large one is timed beside a table of each rank alone. Without CUDA,
small sizes show only that it runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.reference import bucket_index, table_launch
from falsifiers.recsys.reference.dynamic_table import DynamicTable
from falsifiers.recsys.reference.sharded_table import ShardedTable
from falsifiers.recsys.reference.tables import TritonTables
from falsifiers.recsys.table_ranks import watched
from harness.authoring.timing import Timing, interleave

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
        """Return a 64-bit key for each number, another one for each."""
        return numbers * 0x1E3779B97F4A7C15 + 0x7F4A7C15


def main() -> None:
    """Print a table for each size of a batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--rows", type=int, default=10_000_000 if cuda else 1000)
    parser.add_argument("--dim", type=int, default=128 if cuda else 8)
    parser.add_argument("--batches", type=int, nargs="+", default=[4096, 65536, 1048576] if cuda else [64])
    parser.add_argument("--exponent", type=float, default=1.05)
    parser.add_argument("--optimizers", nargs="+", default=["sgd", "rowwise_adagrad"])
    parser.add_argument("--rounds", type=int, default=20 if cuda else 2)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--sweep", action="store_true", help="time our kernels with other blocks")
    parser.add_argument("--profile", action="store_true", help="count launches and waits of each arm")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    given = parser.parse_args()
    if given.ranks > 1:
        with TemporaryDirectory() as folder:
            processes.spawn(rank_of, (given, folder), nprocs=given.ranks)
        return
    device = "cuda" if cuda else "cpu"
    print(f"{torch.cuda.get_device_name() if cuda else 'CPU'}, torch {torch.__version__}, float32", flush=True)
    print(f"{given.rows} rows of {given.dim}, Zipf {given.exponent}", flush=True)
    results: dict[str, Any] = {}
    for optimizer in given.optimizers:
        tables = Tables(given.rows, given.dim, optimizer, device)
        for batch in given.batches:
            if given.sweep:
                sweep(tables, Keys(given.rows, batch, given.exponent, device), given.rounds)
            if given.profile:
                profiled(tables, Keys(given.rows, batch, given.exponent, device))
            results[f"{optimizer} {batch}"] = measure(tables, Keys(given.rows, batch, given.exponent, device), given)
            if given.json:
                given.json.write_text(json.dumps(results, indent=1))
        print(f"{optimizer}: rows differ by {tables.differences()}", flush=True)
        results[f"{optimizer} differences"] = tables.differences()
        results[f"{optimizer} fill"] = tables.filled
        del tables
        if cuda:
            torch.cuda.empty_cache()
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


class Tables:
    """All implementations, with equal rows.

    Attributes:
        ours: a table that has grown while it was filled.
        host: the same behind a cache, or None.
        filled: what the filling took.
    """

    def __init__(self, rows: int, dim: int, optimizer: str, device: str) -> None:
        """Fill our table with all keys, and copy its rows to the others."""
        self.optimizer, self.device = optimizer, device
        recipe = recipe_for(rows, dim, optimizer)
        names = Keys.named(torch.arange(rows, device=device))
        self.ours, self.filled = filled(recipe, names, device)
        self.all = names
        from_host = Recipe(
            **{**vars(recipe), "buckets": recipe.most_buckets, "cached_buckets": recipe.most_buckets // 16}
        )
        self.host, _ = filled(from_host, names, device)
        self.bag = nn.EmbeddingBag(rows, dim, mode="sum", sparse=True, device=device)
        with torch.no_grad():
            for some, part in zip(names.split(1 << 20), self.bag.weight.split(1 << 20), strict=True):
                part.copy_(self.ours.evaluate(some))
        kinds = {"sgd": torch.optim.SGD, "rowwise_adagrad": torch.optim.Adagrad}
        self.step_of_bag = kinds[optimizer](self.bag.parameters(), lr=RATE)
        self.fbgemm = None
        with suppress(ImportError, OSError, RuntimeError):
            self.fbgemm = fbgemm_of(self.bag.weight, optimizer, device)

    def differences(self) -> dict[str, float]:
        """Return how far rows of the other arms are from ours. torch has no row-wise Adagrad."""
        some = slice(0, 1 << 20)
        right = self.ours.evaluate(self.all[some])
        found = {"host": float((self.host.evaluate(self.all[some]) - right).abs().max())}
        if self.optimizer == "sgd":
            found["EmbeddingBag"] = float((self.bag.weight.detach()[some] - right).abs().max())
        if self.fbgemm is not None:
            found["fbgemm"] = float((self.fbgemm.split_embedding_weights()[0][some].detach() - right).abs().max())
        return found


def recipe_for(rows: int, dim: int, optimizer: str) -> Recipe:
    """Return a recipe that begins small and ends with more slots than rows."""
    most = 1
    while most * 128 * 0.8 < rows:
        most *= 2
    return Recipe(dim, max(1, most // 64), most, "step", optimizer, rate=RATE, num_embeddings=rows)  # type: ignore[arg-type]


def filled(recipe: Recipe, names: Tensor, device: str) -> tuple[DynamicTable, dict[str, float]]:
    """Return a table with all keys, and say how long it took."""
    table = DynamicTable(recipe, device)
    synchronize()
    began = time.perf_counter()
    for some in names.split(1 << 20):
        table.touch(some)
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


def measure(tables: Tables, keys: Keys, given: argparse.Namespace) -> dict[str, Any]:
    """Print the table of a size of a batch, and return its numbers."""
    batch = keys.rows.shape[1]
    slopes = torch.randn(batch, given.dim, device=tables.device) / 100.0
    distinct = float(statistics.mean(len(one.unique()) for one in keys.rows))
    print(f"\n{tables.optimizer}, batches of {batch}, {distinct:.0f} distinct keys", flush=True)
    result: dict[str, Any] = {"distinct": distinct}
    for name, arms in (("lookup", lookups(tables, keys)), ("update", updates(tables, keys, slopes))):
        timing = interleave(arms, rounds=given.rounds, warmup=2, seed=0, synchronize=synchronize)
        result[name] = shown(name, timing, arms, "ours", batch)
    names = Keys.named(torch.arange(given.rows, given.rows + batch * (given.rounds + 2), device=tables.device))
    new = iter(names.split(batch))
    fit = 1 << max(4, (batch // 64).bit_length())
    scratch = DynamicTable(replace(tables.ours.recipe, buckets=fit, most_buckets=fit), tables.device)
    known = turns(keys.names[keys.rows])
    arms = {"new keys": lambda: scratch.touch(next(new)), "known keys": lambda: tables.ours.touch(next(known))}
    timing = interleave(arms, rounds=given.rounds, warmup=2, seed=0, synchronize=synchronize)
    result["touch"] = shown("touch", timing, arms, "known keys", batch)
    return result


def sweep(tables: Tables, keys: Keys, rounds: int) -> None:
    """Print how long lookups and steps take with other blocks of keys and of rows."""
    table, batch = tables.ours, keys.names[keys.rows[0]]
    touched = table.touch(batch)
    slopes = torch.zeros(len(batch), table.recipe.dim, device=tables.device)
    kinds: dict[str, tuple[Any, str, tuple[tuple[int, int], ...], Arm]] = {
        "find": (bucket_index, "KEYS", ((8, 4), (16, 4), (32, 4), (32, 8), (64, 8)), lambda: table.index.find(batch)),
        "gather": (
            table_launch, "ROWS", ((2, 1), (4, 1), (4, 4), (8, 4), (16, 4), (32, 8)), lambda: table.spread(touched),
        ),
        "step": (
            table_launch, "ROWS", ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4), (16, 8)),
            lambda: table.update(touched, slopes),
        ),
    }  # fmt: skip
    for name, (module, constant, sizes, arm) in kinds.items():

        def sized(size: tuple[int, int], module: Any = module, constant: str = constant, arm: Arm = arm) -> None:
            with patch.object(module, constant, size):
                arm()

        arms: dict[str, Arm] = {f"{size[0]}/{size[1]}": lambda size=size: sized(size) for size in sizes}  # type: ignore[misc]
        timing = interleave(arms, rounds=rounds, warmup=2, seed=0, synchronize=synchronize)
        shown(name, timing, arms, next(iter(arms)), len(batch))


def profiled(tables: Tables, keys: Keys) -> None:
    """Print what each arm launches and waits for, and the kernels that take longest."""
    slopes = torch.randn(keys.rows.shape[1], tables.bag.embedding_dim, device=tables.device) / 100.0
    arms = {f"lookup {name}": arm for name, arm in lookups(tables, keys).items()}
    arms |= {f"update {name}": arm for name, arm in updates(tables, keys, slopes).items()}
    calls = 5
    print(f"\n{tables.optimizer}, batches of {keys.rows.shape[1]}, for each call", flush=True)
    for name, arm in arms.items():
        for _ in range(3):
            arm()
        synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            arm()
        host = time.perf_counter() - began
        synchronize()
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        with profile(activities=kinds) as seen:
            for _ in range(calls):
                arm()
        events = seen.events() or []
        host_names = {one.name for one in events if one.device_type == torch.autograd.DeviceType.CPU}
        on_device = [one for one in events if one.device_type == torch.autograd.DeviceType.CUDA]
        kernels = [one for one in on_device if one.name not in host_names]  # without marks such as Optimizer.step
        waits = sum(one.name == "cudaStreamSynchronize" for one in events)
        busy: dict[str, list[float]] = {}
        for one in kernels:
            busy.setdefault(one.name, []).append(one.time_range.elapsed_us())
        total = sum(map(sum, busy.values()))
        print(
            f"{name:>22}: {len(kernels) / calls:5.1f} kernels and copies, {waits / calls:4.1f} waits, "
            f"host {host / calls * 1e6:7.0f} us, device {total / calls:7.0f} us", flush=True,
        )  # fmt: skip
        for kernel, times in sorted(busy.items(), key=lambda one: -sum(one[1]))[:9]:
            print(f"{len(times) / calls:30.1f} x {sum(times) / len(times):8.1f} us  {kernel[:80]}", flush=True)


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


def turns(batches: Tensor) -> Iterator[Tensor]:
    """Yield batches for ever."""
    while True:
        yield from batches


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
    named = {name: turns(keys.names[keys.rows]) for name in ("ours", "host")}
    plain = {name: turns(keys.rows) for name in ("bag", "fbgemm")}
    starts = torch.arange(keys.rows.shape[1] + 1, device=keys.rows.device)

    def of_bag() -> None:
        tables.step_of_bag.zero_grad(set_to_none=True)
        tables.bag(next(plain["bag"]), starts[:-1]).backward(slopes)
        tables.step_of_bag.step()

    arms: dict[str, Arm] = {
        "ours": lambda: tables.ours.train(next(named["ours"])).backward(slopes),
        "host": lambda: tables.host.train(next(named["host"])).backward(slopes),
        "EmbeddingBag": of_bag,
    }
    if tables.fbgemm is not None:
        arms["fbgemm"] = lambda: tables.fbgemm(next(plain["fbgemm"]), starts).backward(slopes)
    return arms


def rank_of(rank: int, given: argparse.Namespace, folder: str) -> None:
    """Be one of the ranks."""
    cuda = torch.cuda.device_count() >= given.ranks
    device = f"cuda:{rank}" if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if cuda else "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=given.ranks
    )
    compared(rank, device, folder)
    mine = Keys(given.rows, 1, given.exponent, device).names
    recipe = recipe_for(given.rows, given.dim, given.optimizers[0])
    whole = ShardedTable(DynamicTable(recipe, device))
    alone = DynamicTable(recipe, device)
    for some in mine.split(1 << 20):
        whole.train(some)
        alone.touch(some)
    if rank == 0:
        print(f"{given.ranks} ranks, rank 0 owns {whole.size()} of {given.rows} keys, {device}", flush=True)
    for batch in given.batches:
        keys = Keys(given.rows, batch, given.exponent, device, seed=rank)
        slopes = torch.randn(batch, given.dim, device=device) / 100.0
        given_keys = {name: turns(keys.names[keys.rows]) for name in ("whole", "alone", "whole_u", "alone_u")}

        def update(table: Any, name: str, slopes: Tensor = slopes, of: Any = given_keys) -> None:
            table.train(next(of[name])).backward(slopes)

        arms: dict[str, Arm] = {
            "alone lookup": lambda of=given_keys: alone.evaluate(next(of["alone"])),  # type: ignore[misc]
            "sharded lookup": lambda of=given_keys: whole.evaluate(next(of["whole"])),  # type: ignore[misc]
            "alone update": lambda update=update: update(alone, "alone_u"),  # type: ignore[misc]
            "sharded update": lambda update=update: update(whole, "whole_u"),  # type: ignore[misc]
        }
        timing = interleave(arms, rounds=given.rounds, warmup=2, seed=0, synchronize=synchronize)
        if rank == 0:
            print(f"\nbatches of {batch} for each rank", flush=True)
            shown("", timing, ["alone lookup", "sharded lookup"], "alone lookup", batch)
            shown("", timing, ["alone update", "sharded update"], "alone update", batch)
    dist.destroy_process_group()


def compared(rank: int, device: str, folder: str) -> None:
    """Train small tables beside their models, and print what was found wrong."""
    for scoring, optimizer, buckets in (
        ("lfu", "adagrad", 2), ("timestamp", "adam", 8), ("step", "rowwise_adagrad", 8), ("step", "sgd", 1)
    ):  # fmt: skip
        recipe = Recipe(32, 1, buckets, scoring, optimizer)  # type: ignore[arg-type]
        watch = watched(TritonTables(None), recipe, device, rank, keys=300, steps=6, words=("bench", optimizer))  # type: ignore[arg-type]
        watch.dump(Path(folder) / f"{rank}.safetensors")
        print(f"rank {rank}, {optimizer}, clean: {watch.found.clean}, {watch.found}", flush=True)


def synchronize() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
