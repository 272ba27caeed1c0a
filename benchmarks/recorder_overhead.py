"""The time that the recorder of the CUDA driver adds to a training step of torch.

`python -m benchmarks.recorder_overhead` needs a GPU. One process trains a transformer with the recorder. In some rounds
it counts all launches, in some samples of them, as after the first 20,000, in others it is off, in a drawn order. So
clocks, neighbours and cores are the same. Printed are the medians of the ratios of neighbouring rounds, with quartiles:
to off, and of off to off, which is the noise.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.tools.recorder.libraries import recorder, recording
from harness.tools.recorder.records import read

__all__ = ["main"]

_OFF, _ALL, _SAMPLED = range(3)
_MODES = {"all": _ALL, "samples": _SAMPLED, "off": _OFF}
_MODELS = {"small": (256, 4), "large": (1024, 32)}


def work(width: int, batch: int, steps: int, rounds: int) -> None:
    """Train, and print the ratios of rounds of `steps` steps, with the median step in milliseconds."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs = torch.randn(batch, 128, width, device="cuda")
    enable = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).RecorderEnable

    def seconds(mode: int) -> float:
        enable(mode)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / steps

    for _ in range(5):
        seconds(_ALL)
    ratios: dict[str, list[float]] = {name: [] for name in _MODES}
    taken = []
    for _ in range(rounds):
        for name in random.sample(list(ratios), len(ratios)):
            arms = [_MODES[name], _OFF]
            order = random.sample((0, 1), 2)
            found = {place: seconds(arms[place]) for place in order}
            ratios[name].append(found[0] / found[1])
            taken.append(found[1])
    for name, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"  {name} / off: {middle:.4f} (quartiles {low:.4f} to {high:.4f}, {rounds} rounds of {steps} steps)")
    print(f"  a step without callbacks: {statistics.median(taken) * 1e3:.2f} ms", flush=True)


def main() -> None:
    """Measure a small model, whose steps wait for launches, and a large one, whose steps wait for the GPU."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model", choices=_MODELS, action="append")
    parser.add_argument("--work", nargs=2, type=int, metavar=("WIDTH", "BATCH"))
    arguments = parser.parse_args()
    if arguments.work:
        width, batch = arguments.work
        work(width, batch, arguments.steps, arguments.rounds)
        return
    for width, batch in (_MODELS[name] for name in arguments.model or _MODELS):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            variables = recording(recorder(folder / "cache"), folder)
            options = [
                "--steps",
                str(arguments.steps),
                "--rounds",
                str(arguments.rounds),
                "--work",
                str(width),
                str(batch),
            ]
            print(f"width {width}, {batch} sequences of 128", flush=True)
            subprocess.run(
                [sys.executable, "-m", "benchmarks.recorder_overhead", *options],
                env={**os.environ, **variables},
                check=True,
            )
            seen = read(folder)
            print(f"  {seen.launches} launches counted, {len(seen.events)} lines, {seen.unseen}")


if __name__ == "__main__":
    main()
