"""GPU time of the backward of all layers on the new path, relative to the old path."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch

from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.subjects.cublas import Path, TwoPaths
from harness import NotMeasured, Trial
from harness.authoring.timing import interleave

_NEW, _OLD, _AGAIN = "new", "old", "old again"
_WARMUP = 3  # rounds, while clocks, the allocator and cuBLAS's choice of kernels settle
_HEAD_START = 20_000_000  # cycles, 10 ms at 2 GHz: a host queues a layer in 3 ms, beside other work in 5 ms


def time_backward(trial: Trial[TwoPaths], shape: BlockShape) -> None:
    """Time the paths in turns, in random order, and measure the bounds of 99 % intervals of their ratios.

    The interval is widened by the old path's noise against itself. The new path's own scatter is no noise: it could
    escape judgment by an unsteady pace.

    Raises:
        NotMeasured: `ratio_limit` is in the interval.
    """
    parameters = trial.parameters
    generator = torch.Generator().manual_seed(trial.seed)
    size = (1, parameters["largest_tokens"], shape.hidden)
    x, gradient = (torch.randn(size, generator=generator).to(trial.device) for _ in range(2))
    layers = [
        new_weights(shape, layer, dtype=torch.float32, device=trial.device) for layer in range(parameters["layers"])
    ]
    gpu = None if trial.device == "cpu" else _GpuClock()

    def arm(path: Path) -> Callable[[], None]:
        """The backward of all layers, one after the other. The forward of each runs once, beforehand."""
        blocks = [Block(shape, trial.subject.backend(path, layer)) for layer in range(len(layers))]
        saved = [block.forward(x, weights)[1] for block, weights in zip(blocks, layers, strict=True)]

        def backward() -> None:
            grad_output = gradient
            for block, weights, kept in reversed(list(zip(blocks, layers, saved, strict=True))):
                with nullcontext() if gpu is None else gpu.running():
                    grad_output, _ = block.backward(kept, weights, grad_output)

        return backward

    with trial.subject_fault():
        arms = {_NEW: arm("new"), _OLD: arm("old")}
        timing = interleave(
            {**arms, _AGAIN: arms[_OLD]},
            rounds=parameters["rounds"],
            warmup=_WARMUP,
            seed=trial.seed,
            clock=gpu or time.perf_counter,
        )
    (trial.artifacts / "timing.json").write_text(json.dumps(timing.as_json()))
    noise, slower = timing.ratio(_AGAIN, _OLD), timing.ratio(_NEW, _OLD, again=_AGAIN)
    trial.measure(noise=[noise.low, noise.high])
    if not slower.settles(parameters["ratio_limit"]):
        raise NotMeasured(
            f"this machine cannot decide: the path takes {slower.low:.3f} to {slower.high:.3f} of the old path's time, "
            f"and the limit of {parameters['ratio_limit']} is in that interval. The old path takes {noise.low:.3f} to "
            f"{noise.high:.3f} of its own time"
        )
    trial.measure(slower_low=slower.low, slower_high=slower.high)


class _GpuClock:
    """A clock in seconds that runs only while the GPU does timed work: the host's time does not count."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._timed: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time what the block queues, on all streams. The GPU sleeps first, until the host has queued all of it."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_HEAD_START)
        start.record()
        yield
        torch.cuda.synchronize()  # an event waits for its own stream alone, and a path may use others
        end.record()
        self._timed.append((start, end))

    def __call__(self) -> float:
        """The seconds of all work that was queued so far; waits for its end."""
        torch.cuda.synchronize()
        self._seconds += sum(start.elapsed_time(end) for start, end in self._timed) / 1000
        self._timed.clear()
        return self._seconds
