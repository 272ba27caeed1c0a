"""Our dynamic embedding table compared with nn.EmbeddingBag, and with fbgemm's table-batched embedding if installed.

    python -m benchmarks.dynamic_embedding [--rows 10000000] [--dim 128] [--batches 4096 65536] [--rounds 20]

Keys are Zipf's: the r-th most frequent one has a probability of about r ** -exponent. Ours get them as random 64-bit
numbers, which the table has to find; the others get row numbers. All arms have equal rows at first, and make equal
steps in turns, in random order, in one process. The table has milliseconds (median), rows in a second, and the ratio of
the arm's time to ours with its 99 % interval. At last, rows of all arms are compared, so what is timed is right.

"lookup" is a lookup without training. "update" is a training lookup, its backward pass and the optimizer's step, with
no new keys. "touch" is only the search of a training lookup, for known keys and for new ones, which evict others.
"ours" replays training lookups as CUDA graphs, "launched" launches their kernels. "host" has its rows in pinned host
memory and a 16th of them on the device. --profile first counts each arm's kernels and its waits for the device, and
measures how long host and device work. Without CUDA, small sizes show only that the benchmark runs.

`benchmarks.sharded_embedding` times a table of two ranks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.embedding_arms import Keys, Tables, lookups, shown, synchronize, turns, updates
from falsifiers.recsys.reference.dynamic_table import DynamicTable
from harness.authoring.timing import interleave


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
    parser.add_argument("--profile", action="store_true", help="count launches and waits of each arm")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    given = parser.parse_args()
    device = "cuda" if cuda else "cpu"
    print(f"{torch.cuda.get_device_name() if cuda else 'CPU'}, torch {torch.__version__}, float32", flush=True)
    print(f"{given.rows} rows of {given.dim}, Zipf {given.exponent}", flush=True)
    results: dict[str, Any] = {}
    for optimizer in given.optimizers:
        tables = Tables(given.rows, given.dim, optimizer, device)
        for batch in given.batches:
            keys = Keys(given.rows, batch, given.exponent, device)
            if given.profile:
                profiled(tables, keys)
            results[f"{optimizer} {batch}"] = measure(tables, keys, given)
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


def measure(tables: Tables, keys: Keys, given: argparse.Namespace) -> dict[str, Any]:
    """Print the table of a size of a batch, and return its numbers."""
    batch = keys.rows.shape[1]
    slopes = torch.randn(batch, given.dim, device=tables.device) / 100.0
    distinct = float(statistics.mean(len(row.unique()) for row in keys.rows))
    print(f"\n{tables.optimizer}, batches of {batch}, {distinct:.0f} distinct keys", flush=True)
    result: dict[str, Any] = {"distinct": distinct}
    for name, arms in (("lookup", lookups(tables, keys)), ("update", updates(tables, keys, slopes))):
        timing = interleave(arms, rounds=given.rounds, warmup=2, seed=0, synchronize=synchronize)
        result[name] = shown(name, timing, arms, "ours", batch)
    names = Keys.named(torch.arange(given.rows, given.rows + batch * (given.rounds + 2), device=tables.device))
    new = iter(names.split(batch))
    fit = 1 << max(4, (batch // 64).bit_length())
    scratch = DynamicTable(replace(tables.launched.recipe, buckets=fit, most_buckets=fit), tables.device)
    known = turns(keys.names[keys.rows])
    arms = {
        "new keys": lambda: scratch.touch(next(new)),
        "known keys": lambda: tables.launched.touch(next(known)),
    }
    timing = interleave(arms, rounds=given.rounds, warmup=2, seed=0, synchronize=synchronize)
    result["touch"] = shown("touch", timing, arms, "known keys", batch)
    return result


def profiled(tables: Tables, keys: Keys) -> None:
    """Print the launches and waits of each arm, and the kernels that take longest."""
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
        host_names = {event.name for event in events if event.device_type == torch.autograd.DeviceType.CPU}
        on_device = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
        kernels = [event for event in on_device if event.name not in host_names]  # without marks such as Optimizer.step
        waits = sum(event.name == "cudaStreamSynchronize" for event in events)
        busy: dict[str, list[float]] = {}
        for event in kernels:
            busy.setdefault(event.name, []).append(event.time_range.elapsed_us())
        total = sum(map(sum, busy.values()))
        print(
            f"{name:>22}: {len(kernels) / calls:5.1f} kernels and copies, {waits / calls:4.1f} waits, "
            f"host {host / calls * 1e6:7.0f} us, device {total / calls:7.0f} us", flush=True,
        )  # fmt: skip
        for kernel, times in sorted(busy.items(), key=lambda item: -sum(item[1]))[:9]:
            print(f"{len(times) / calls:30.1f} x {sum(times) / len(times):8.1f} us  {kernel[:80]}", flush=True)


if __name__ == "__main__":
    main()
