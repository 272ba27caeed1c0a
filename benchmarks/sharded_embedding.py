"""Our dynamic embedding table over several ranks, compared with a table of each rank alone.

    python -m benchmarks.sharded_embedding [--ranks 2] [--rows 10000000] [--dim 128] [--batches 4096 65536]

Ranks communicate by NCCL if each has a GPU, else by gloo on the CPU. First they train small tables, one for each
optimizer, and compare them with a model in float64. Then the time of a large table is measured, with keys as in
`benchmarks.dynamic_embedding`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor

from benchmarks.embedding_arms import Arm, Keys, recipe_for, shown, synchronize, turns
from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.reference.dynamic_table import DynamicTable
from falsifiers.recsys.reference.sharded_table import ShardedTable
from falsifiers.recsys.reference.tables import TritonTables
from falsifiers.recsys.table_ranks import watched
from harness.authoring.timing import interleave


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=10_000_000 if cuda else 1000)
    parser.add_argument("--dim", type=int, default=128 if cuda else 8)
    parser.add_argument("--batches", type=int, nargs="+", default=[4096, 65536, 1048576] if cuda else [64])
    parser.add_argument("--exponent", type=float, default=1.05)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--rounds", type=int, default=20 if cuda else 2)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        processes.spawn(rank_of, (given, folder), nprocs=given.ranks)


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
    recipe = recipe_for(given.rows, given.dim, given.optimizer)
    whole = ShardedTable(DynamicTable(recipe, device))
    alone = DynamicTable(recipe, device)
    for chunk in mine.split(1 << 20):
        whole.train(chunk)
        alone.touch(chunk)
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
    """Train small tables beside their models, and print the differences."""
    for scoring, optimizer, buckets in (
        ("lfu", "adagrad", 2), ("timestamp", "adam", 8), ("step", "rowwise_adagrad", 8), ("step", "sgd", 1)
    ):  # fmt: skip
        recipe = Recipe(32, 1, buckets, scoring, optimizer)  # type: ignore[arg-type]
        watch = watched(TritonTables(None), recipe, device, rank, keys=300, steps=6, words=("bench", optimizer))  # type: ignore[arg-type]
        watch.dump(Path(folder) / f"{rank}.safetensors")
        print(f"rank {rank}, {optimizer}, clean: {watch.errors.clean}, {watch.errors}", flush=True)


if __name__ == "__main__":
    main()
