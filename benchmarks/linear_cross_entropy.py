"""The fused loss of a head, compared with its three bare products, plain torch, torch.compile, Liger and Cut-CE.

    python -m benchmarks.linear_cross_entropy [--shapes 65536x1280x65536 …] [--rounds 10] [--chunks]
        [--smoothing 0.1] [--json FILE]

For each shape tokens x width x vocabulary, in bfloat16 with a tenth of the rows ignored, each arm computes the loss and
both gradients. The table has milliseconds (mean without the largest and the smallest tenth), the ratio to the three
bare products with its 99 % interval, all measured in turns in one run, the extra memory at the peak, and the largest
errors of loss and gradients against float64, relative to the largest element. An arm whose package is missing is left
out. With --chunks our arm is tried with several sizes of a chunk. Without CUDA, small shapes show only that it runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from falsifiers.nanochat.reference.linear_cross_entropy import linear_cross_entropy, rows_per_chunk
from harness.authoring.timing import interleave

SHAPES = (
    *("65536x1280x65536", "8192x1280x65536", "8192x896x151936", "16384x4096x128256"),
    *("3000x2048x50257", "8192x2048x32001", "8192x896x151643", "4096x1280x1000003"),
    *("1x2048x50257", "256x2048x50257", "131072x64x50257", "4096x8192x128256"),
)
IGNORED = -100

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From hidden states [tokens, width], head [vocabulary, width] and targets [tokens] to the mean loss."""


@dataclass(frozen=True)
class Inputs:
    """Random inputs; logits have a standard deviation of about 1."""

    hidden: Tensor
    weight: Tensor
    targets: Tensor
    smoothing: float = 0.0

    @staticmethod
    def draw(shape: str, device: str, smoothing: float = 0.0) -> Inputs:
        """Draw the inputs of a shape."""
        tokens, width, vocabulary = (int(size) for size in shape.split("x"))
        generator = torch.Generator(device).manual_seed(0)

        def normal(rows: int) -> Tensor:
            return torch.randn(rows, width, generator=generator, device=device).bfloat16()

        targets = torch.randint(vocabulary, (tokens,), generator=generator, device=device)
        targets[torch.rand(tokens, generator=generator, device=device) < 0.1] = IGNORED
        targets[0] = 0
        hidden, weight = normal(tokens).requires_grad_(), normal(vocabulary).div_(width**0.5).requires_grad_()
        return Inputs(hidden, weight, targets, smoothing)


def main() -> None:
    """Print a table for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--shapes", nargs="+", default=SHAPES if cuda else ("64x32x256",))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--chunks", action="store_true", help="try several sizes of a chunk")
    parser.add_argument("--smoothing", type=float, default=0.0, help="label smoothing; arms without it are left out")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    arguments = parser.parse_args()
    device = "cuda" if cuda else "cpu"
    print(f"{torch.cuda.get_device_name() if cuda else 'CPU'}, torch {torch.__version__}, bfloat16, 10 % ignored")
    results = {}
    for shape in arguments.shapes:
        results[shape] = measure(
            Inputs.draw(shape, device, arguments.smoothing), shape, arguments.rounds, arguments.chunks
        )
        gc.collect()
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))


def measure(inputs: Inputs, shape: str, rounds: int, chunks: bool) -> dict[str, dict[str, float]]:
    """Print the table of a shape and return its numbers by arm."""
    arms: dict[str, Callable[[], object]] = {"three products": lambda: bare_products(inputs)}
    for name, loss in losses(inputs, chunks):
        try:
            gradients(loss, inputs)
            arms[name] = lambda loss=loss: gradients(loss, inputs)  # type: ignore[misc]
        except Exception as error:
            print(f"{shape}: {name} is left out: {error!r:.300}", flush=True)
    peaks = {name: extra_memory(arm) for name, arm in arms.items()}
    timing = interleave(arms, rounds=rounds, warmup=2, seed=0, synchronize=synchronize)
    right = exact(inputs)
    print(f"\n{shape}: {len(inputs.targets)} tokens, chunks of {chunk_rows(inputs)} rows")
    print(f"{'arm':>22} {'ms':>8} {'ratio':>6} {'99 % interval':>15} {'MiB':>7} {'loss':>8} {'dX':>8} {'dW':>8}")
    table = {}
    for name in arms:
        ratio = timing.ratio(name, "three products")
        errors = [math.nan] * 3 if name == "three products" else differences(arms[name](), right)  # type: ignore[arg-type]
        milliseconds = statistics.median(timing.seconds[name]) * 1e3
        table[name] = {
            "ms": milliseconds, "ratio": ratio.estimate, "low": ratio.low, "high": ratio.high, "bytes": peaks[name],
            "loss": errors[0], "hidden": errors[1], "weight": errors[2],
        }  # fmt: skip
        interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
        shown = " ".join(f"{error:8.1e}" for error in errors)
        print(
            f"{name:>22} {milliseconds:8.3f} {ratio.estimate:6.3f} {interval:>15} {peaks[name] / 2**20:7.0f} {shown}",
            flush=True,
        )
    return table


def losses(inputs: Inputs, chunks: bool) -> Iterator[tuple[str, Loss]]:
    """Yield the arms that are installed here."""
    smoothing = inputs.smoothing

    def ours(x: Tensor, w: Tensor, t: Tensor, **options: Any) -> Tensor:
        return linear_cross_entropy(x, w, t, label_smoothing=smoothing, **options)

    def of_torch(x: Tensor, w: Tensor, t: Tensor) -> Tensor:
        """Make the products of all rows by torch, as on other GPUs."""
        with patch("falsifiers.nanochat.reference.linear_cross_entropy.fits", return_value=False):
            return ours(x, w, t)

    def plain(x: Tensor, w: Tensor, t: Tensor) -> Tensor:
        """Make all logits, and the loss in float32 as trainers do."""
        return cross_entropy((x @ w.T).float(), t, ignore_index=IGNORED, label_smoothing=smoothing)

    yield "ours", ours
    yield "ours, float32 sums", lambda x, w, t: ours(x, w, t, accumulate_float32=True)
    yield "ours, torch's products", of_torch
    if chunks:
        for rows in (512, 640, 896, 1024, 1664, 2048, 4096):
            if rows <= len(inputs.targets):
                yield f"ours, {rows} rows", lambda x, w, t, rows=rows: ours(x, w, t, chunk_rows=rows)
    yield "plain", plain
    yield "torch.compile", torch.compile(plain, dynamic=False)
    with suppress(ImportError):
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        yield (
            "Liger",
            lambda x, w, t: liger_fused_linear_cross_entropy(x, w, t, ignore_index=IGNORED, label_smoothing=smoothing),
        )
    if smoothing:
        return
    with suppress(ImportError):
        from cut_cross_entropy import linear_cross_entropy as cut

        yield "Cut-CE", lambda x, w, t: cut(x, w, t, ignore_index=IGNORED)
    with suppress(ImportError):
        from quack.linear_cross_entropy import chunked_linear_cross_entropy

        yield "quack", lambda x, w, t: chunked_linear_cross_entropy(x, w, t, ignore_index=IGNORED, reduction="mean")


def gradients(loss: Loss, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """Return loss and gradients."""
    value = loss(inputs.hidden, inputs.weight, inputs.targets)
    of_hidden, of_weight = torch.autograd.grad(value, (inputs.hidden, inputs.weight))
    return value.detach(), of_hidden, of_weight


@torch.no_grad()
def bare_products(inputs: Inputs) -> None:
    """Make logits and both gradients from them, in chunks of 4,096 rows where all logits are too large."""
    tokens, vocabulary = len(inputs.hidden), len(inputs.weight)
    whole = tokens * vocabulary * 2 <= 16 << 30
    for start in range(0, tokens, tokens if whole else 4096):
        rows = inputs.hidden[start : start + (tokens if whole else 4096)]
        logits = rows @ inputs.weight.T
        logits @ inputs.weight
        logits.T @ rows


def chunk_rows(inputs: Inputs) -> int:
    """Return the rows that a chunk of ours has."""
    vocabulary, width = inputs.weight.shape
    return rows_per_chunk(len(inputs.hidden), vocabulary, width, inputs.hidden.element_size())


def extra_memory(arm: Callable[[], object]) -> int:
    """Return the bytes at an arm's peak, less those that are allocated before it; 0 without CUDA."""
    if not torch.cuda.is_available():
        return 0
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    arm()
    return torch.cuda.max_memory_allocated() - before


def synchronize() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@torch.no_grad()
def exact(inputs: Inputs) -> tuple[float, Tensor, Tensor]:
    """Return loss and gradients, summed in float64 from the products of chunks of rows, whose inputs are exact."""
    counts = (inputs.targets != IGNORED).double()
    weight = inputs.weight.double()
    loss, of_hidden = 0.0, torch.empty_like(inputs.hidden, dtype=torch.float32)
    of_weight = torch.zeros_like(weight)
    for start in range(0, len(inputs.hidden), 1024):
        rows = slice(start, start + 1024)
        hidden = inputs.hidden[rows].double()
        log_p = (hidden @ weight.T).log_softmax(dim=-1)
        at = inputs.targets[rows].clamp_min(0).unsqueeze(-1)
        kept, spread = 1.0 - inputs.smoothing, inputs.smoothing / len(weight)
        of_target, of_all = log_p.gather(-1, at).squeeze(-1), log_p.sum(dim=-1)
        loss -= float(((kept * of_target + spread * of_all) * counts[rows]).sum() / counts.sum())
        gradient = log_p.exp_().sub_(spread)
        gradient.scatter_add_(-1, at, torch.full_like(at, -kept, dtype=torch.float64))
        gradient *= (counts[rows] / counts.sum()).unsqueeze(-1)
        of_hidden[rows] = (gradient @ weight).float()
        of_weight += gradient.T @ hidden
    return loss, of_hidden, of_weight.float()


def differences(answer: tuple[Tensor, Tensor, Tensor], right: tuple[float, Tensor, Tensor]) -> list[float]:
    """Return the largest errors of loss, gradient of the hidden states and of the head."""
    pairs = zip(answer[1:], right[1:], strict=True)
    return [
        abs(float(answer[0]) - right[0]) / abs(right[0]),
        *(float((got.float() - true).abs().max() / true.abs().max()) for got, true in pairs),
    ]


if __name__ == "__main__":
    main()
