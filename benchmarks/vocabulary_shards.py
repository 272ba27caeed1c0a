"""The fused loss of two processes with a shard of the vocabulary each, compared with that of one process.

    python -m benchmarks.vocabulary_shards [--shape 8192x1280x65536] [--rounds 10]

With two GPUs the processes exchange by NCCL, without by gloo. "same rows" is `sharded_linear_cross_entropy`, "own rows"
`data_parallel_linear_cross_entropy`: each process has half of the rows. A line has milliseconds (median), the extra
memory at the peak of a process, and the largest errors of loss and gradients against whole logits in float64, relative
to the largest element, over both processes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.linear_cross_entropy import Inputs, differences, exact, extra_memory, synchronize
from falsifiers.nanochat.reference.linear_cross_entropy import linear_cross_entropy
from falsifiers.nanochat.reference.vocabulary_shards import (
    data_parallel_linear_cross_entropy,
    sharded_linear_cross_entropy,
)
from falsifiers.param_decomp.ranks import run_of_ranks

Line = tuple[str, float, int, list[float]]


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.device_count() > 1
    parser.add_argument("--shape", default="8192x1280x65536" if cuda else "64x32x256")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ranks = run_of_ranks(
            2, partial(lines, options.shape, options.rounds), "cuda:0" if cuda else "cpu", Path(folder)
        )
    print(
        f"{options.shape}, two processes, {'NCCL' if cuda else 'gloo'}, torch {torch.__version__}, "
        "bfloat16, 10 % ignored"
    )
    print(f"{'':>12} {'ms':>8} {'MiB':>7} {'loss':>8} {'dX':>8} {'dW':>8}")
    for (name, milliseconds, peak, errors), other in zip(*ranks, strict=True):
        shown = " ".join(f"{max(pair):8.1e}" for pair in zip(errors, other[3], strict=True))
        print(f"{name:>12} {max(milliseconds, other[1]):8.3f} {max(peak, other[2]) / 2**20:7.0f} {shown}", flush=True)


def lines(shape: str, rounds: int, device: str) -> list[Line]:
    """Measure each way in this process."""
    inputs, rank = Inputs.draw(shape, device), dist.get_rank()
    loss, of_hidden, of_weight = exact(inputs)
    tokens, vocabulary = len(inputs.hidden), len(inputs.weight)
    own, shard = (slice(rank * size // 2, (rank + 1) * size // 2) for size in (tokens, vocabulary))
    group, everything = dist.group.WORLD, slice(None)
    assert group is not None
    ways: dict[str, tuple[Callable[..., Tensor], slice, slice]] = {
        "one process": (linear_cross_entropy, everything, everything),
        "same rows": (partial(sharded_linear_cross_entropy, group=group), everything, shard),
        "own rows": (partial(data_parallel_linear_cross_entropy, group=group), own, shard),
    }
    found = []
    for name, (way, rows, tokens_of) in ways.items():
        hidden, weight = (
            tensor.detach()[part].clone().requires_grad_()
            for tensor, part in ((inputs.hidden, rows), (inputs.weight, tokens_of))
        )

        def arm(
            way: Callable[..., Tensor] = way, asked: tuple[Tensor, Tensor] = (hidden, weight), rows: slice = rows
        ) -> tuple[Tensor, Tensor, Tensor]:
            value = way(*asked, inputs.targets[rows])
            of_hidden, of_weight = torch.autograd.grad(value, asked)
            return value.detach(), of_hidden, of_weight

        answer = arm()
        peak = extra_memory(arm)
        errors = differences(answer, (loss, of_hidden[rows], of_weight[tokens_of]))
        found.append((name, statistics.median(timed(arm) for _ in range(rounds)) * 1e3, peak, errors))
    return found


def timed(arm: Callable[[], object]) -> float:
    """Return the seconds of a call that all processes begin together."""
    dist.barrier()
    synchronize()
    start = time.perf_counter()
    arm()
    synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
