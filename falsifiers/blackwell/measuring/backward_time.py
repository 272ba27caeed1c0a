"""Time of the backward of all layers on the new path, relative to the old path."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.subjects.cublas import Path, TwoPaths
from harness import NotMeasured, Trial
from harness.authoring.timing import Interval, interleave

__all__ = ["time_backward"]

_NEW, _OLD, _AGAIN = "new", "old", "old again"
_WARMUP = 3  # rounds, while clocks, the allocator and cuBLAS's choice of kernels settle


def time_backward(trial: Trial[TwoPaths], shape: BlockShape) -> None:
    """Time the paths in turns, in random order, and measure the bounds of 99 % intervals of their ratios.

    The interval is widened by the old path's noise against itself. Other work on the host slows the old path more,
    because it launches more kernels. This favours the new path, so the upper bound also has the spread of the old
    path as a factor. The new path's own scatter is no noise: it could escape judgment by an unsteady pace.

    Raises:
        NotMeasured: `ratio_limit` is in the interval.
    """
    asked = trial.parameters
    generator = torch.Generator().manual_seed(trial.seed)
    size = (1, asked["largest_tokens"], shape.hidden)
    x, gradient = (torch.randn(size, generator=generator).to(trial.device) for _ in range(2))
    layers = [new_weights(shape, layer, dtype=torch.float32, device=trial.device) for layer in range(asked["layers"])]

    def arm(path: Path) -> Callable[[], None]:
        """The backward of all layers, one after the other. The forward of each runs once, beforehand."""
        blocks = [Block(shape, trial.subject.backend(path, layer)) for layer in range(len(layers))]
        saved = [block.forward(x, weights)[1] for block, weights in zip(blocks, layers, strict=True)]

        def backward() -> None:
            above = gradient
            for block, weights, kept in reversed(list(zip(blocks, layers, saved, strict=True))):
                above, _ = block.backward(kept, weights, above)

        return backward

    with trial.subject_fault():
        arms = {_NEW: arm("new"), _OLD: arm("old")}
        timing = interleave(
            {**arms, _AGAIN: arms[_OLD]},
            rounds=asked["rounds"],
            warmup=_WARMUP,
            seed=trial.seed,
            synchronize=torch.cuda.synchronize if trial.device != "cpu" else lambda: None,
        )
    (trial.artifacts / "timing.json").write_text(json.dumps(timing.as_json()))
    noise, found = timing.ratio(_AGAIN, _OLD), timing.ratio(_NEW, _OLD, again=_AGAIN)
    spread = timing.spread(_OLD)
    slower = Interval(found.estimate, found.low, found.high * spread)
    trial.measure(noise=[noise.low, noise.high], spread=spread)
    if not slower.settles(asked["ratio_limit"]):
        raise NotMeasured(
            f"this machine cannot decide: the path takes {slower.low:.3f} to {slower.high:.3f} of the old path's time, "
            f"and the limit of {asked['ratio_limit']} is in that interval. The old path takes {noise.low:.3f} to "
            f"{noise.high:.3f} of its own time, and its slow samples {spread:.2f} times as long as its fast ones"
        )
    trial.measure(slower_low=slower.low, slower_high=slower.high)
