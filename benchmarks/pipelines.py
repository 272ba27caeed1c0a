"""The time of a training step by pipeline: none, native and prefetch, in turns, and their ratios to none.

    python -m benchmarks.pipelines [--shapes 32x2048x128x4x2 …] [--rows 1000000] [--tables device host] [--rounds 20]

A shape is users x history x width x heads x layers. Heads are 64 numbers wide, and a user has a fifth of the history in
candidates. Attention is our Triton kernel in bfloat16, the rest is float32, and the optimizer is SGD. Tables are in the
memory of the GPU, or in page-locked memory of the host, which the GPU reads and writes by itself. Then gathering is
slow.

Every arm trains on the same batches. A sample is several steps and a wait for the device. The table has milliseconds of
a step (mean without the largest and the smallest tenth), the ratio to none with its 99 % interval, the tokens of a
second, and the spread of the samples. "none again" shows the noise. Before that, all arms train from equal weights, and
the table has the number of results that differ in any bit. Without CUDA, the output shows only that the benchmark runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from falsifiers.recsys.reference.pipelines import Native, PipelinedRun, Plain, Prefetch
from falsifiers.recsys.reference.ranking_model import Here, RankingModel
from falsifiers.recsys.streams import streams_on
from falsifiers.recsys.training_cases import Case, batches, recipe, weights
from falsifiers.recsys.training_subject import Batch
from harness.authoring.timing import interleave

SHAPES = ("128x256x128x2x2", "32x2048x128x2x2", "32x2048x256x4x4")
ARMS: dict[str, type[Plain]] = {"none": Plain, "none again": Plain, "native": Native, "prefetch": Prefetch}
BATCHES = 20
"""Of a sample: so many steps, from the first copy until the device is done."""


class HostTables(RankingModel):
    """Tables are in page-locked memory of the host; SGD only, which has no moments beside them."""

    def __init__(self, *given: Any) -> None:
        """Move the tables."""
        super().__init__(*given)
        self.table = self.table.cpu().pin_memory()

    def gather(self, here: Here) -> None:
        """Read the rows over the bus."""
        _move_rows[(here["rows"].shape[0],)](
            self.table, here["rows"], here["unique"], self.total, self.table.shape[1], reading=True
        )

    def write(self, here: Here) -> None:
        """Write the rows over the bus."""
        _move_rows[(here["rows"].shape[0],)](
            self.table, here["rows"], here["unique"], self.total, self.table.shape[1], reading=False
        )


@triton.jit
def _move_rows(table, rows, unique, total, width, reading: tl.constexpr):  # type: ignore[no-untyped-def]
    """Move one row; the row behind all tables stays as it is, and reads as zeros."""
    slot = tl.program_id(0).to(tl.int64)
    place = tl.load(unique + slot)
    columns = tl.arange(0, 1024)
    there = columns < width
    if reading:
        values = tl.load(table + place * width + columns, mask=there & (place < total), other=0.0)
        tl.store(rows + slot * width + columns, values, mask=there)
    else:
        values = tl.load(rows + slot * width + columns, mask=there, other=0.0)
        tl.store(table + place * width + columns, values, mask=there & (place < total))


def main() -> None:
    """Print a table for each shape and place of the embeddings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--shapes", nargs="+", default=SHAPES if cuda else ("3x24x16x1x1",))
    parser.add_argument("--rows", type=int, default=1_000_000 if cuda else 100, help="of the largest table")
    parser.add_argument("--tables", nargs="+", choices=("device", "host"), default=("device", "host")[: 1 + cuda])
    parser.add_argument("--rounds", type=int, default=20 if cuda else 2)
    parser.add_argument("--json", type=Path, help="also write everything to this file, after each table")
    arguments = parser.parse_args()
    if not cuda:
        torch.set_num_threads(1)
    print(f"{torch.cuda.get_device_name() if cuda else 'CPU'}, torch {torch.__version__}", flush=True)
    results: dict[str, Any] = {}
    for shape in arguments.shapes:
        for tables in arguments.tables:
            name = f"{shape} tables of {arguments.rows} rows in memory of the {tables}"
            results[name] = measure(name, shape, arguments.rows, tables, arguments.rounds, "cuda" if cuda else "cpu")
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1))


def measure(name: str, shape: str, rows: int, tables: str, rounds: int, device: str) -> dict[str, Any]:
    """Print one table and return its numbers by arm."""
    users, history, width, heads, layers = (int(size) for size in shape.split("x"))
    attention = "fused" if device == "cuda" else "dense"
    case = Case("none", "sgd", attention, 2, max(1, history // 5), "static", 0)
    sizes = {
        "rows": rows, "width": width, "layers": layers, "heads": heads, "head_width": 64 if device == "cuda" else 8,
        "users": users, "history": users * history,
    }  # fmt: skip
    made = recipe(case, sizes)
    data = batches(made, case, sizes, BATCHES, device)
    first = weights(replace(made, rows=()), 0)
    for number, count in enumerate(made.rows):
        first[f"tables.{number}"] = torch.randn(count, width, device=device, dtype=first["actions"].dtype)
    kind = HostTables if tables == "host" else RankingModel
    runs = {arm: run(kind(made, first, device), pipeline, device) for arm, pipeline in ARMS.items()}
    outcomes = {arm: run.train(data, 4) for arm, run in runs.items()}
    differing = {
        arm: sum(
            not torch.equal(outcome.loss, other.loss) or not torch.equal(outcome.logits, other.logits)
            for outcome, other in zip(mine, outcomes["none"], strict=True)
        )
        for arm, mine in outcomes.items()
    }
    timing = interleave(
        {arm: sample(run, data) for arm, run in runs.items()}, rounds=rounds, warmup=2, seed=0, synchronize=wait
    )
    tokens = float(data[0].tensors["ids"].numel())
    print(f"\n{name}; {tokens:.0f} tokens a batch, {copied(data[0]) / 2**20:.1f} MiB copied")
    print(f"{'pipeline':>10} {'ms':>8} {'/ none':>7} {'99 % interval':>15} {'Mtokens/s':>9} {'spread':>6}  bits differ")
    numbers: dict[str, Any] = {}
    for arm in runs:
        ratio, seconds = timing.ratio(arm, "none"), mean(timing.seconds[arm]) / BATCHES
        numbers[arm] = {
            "ms": seconds * 1e3, "ratio": ratio.estimate, "low": ratio.low, "high": ratio.high,
            "spread": timing.spread(arm), "differing": differing[arm],
        }  # fmt: skip
        interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
        print(
            f"{arm:>10} {seconds * 1e3:8.3f} {ratio.estimate:7.3f} {interval:>15} {tokens / seconds / 1e6:9.2f} "
            f"{timing.spread(arm):6.2f}  {differing[arm]}", flush=True,
        )  # fmt: skip
    return numbers


def run(model: RankingModel, pipeline: type[Plain], device: str) -> PipelinedRun:
    """Return a run with its own streams. No stream sleeps."""
    streams = streams_on(device, "none", 0)
    return PipelinedRun(model, pipeline(model, streams), streams)


def sample(pipelined_run: PipelinedRun, data: list[Batch]) -> Callable[[], object]:
    """Return a function that trains on all batches."""

    def train() -> None:
        pipelined_run.position = 0
        pipelined_run.train(data, BATCHES)

    return train


def copied(batch: Batch) -> int:
    """Return the bytes of a batch."""
    return sum(tensor.numel() * tensor.element_size() for tensor in batch.tensors.values())


def mean(samples: tuple[float, ...]) -> float:
    """Return the mean without the largest and the smallest tenth."""
    cut = len(samples) // 10
    kept = sorted(samples)[cut : len(samples) - cut]
    return sum(kept) / len(kept)


def wait() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
