"""Time of the backward of all layers on the new path, relative to the old path and to itself."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.subjects.cublas import Path, TwoPaths
from harness import NotMeasured, Trial
from harness.authoring.timing import interleave

__all__ = ["time_backward"]

_NEW, _AGAIN, _OLD = "new", "new again", "old"
_LARGEST_SPREAD = 1.1  # of the old path; 1.001 on an idle H200, 1.26 and 1.70 beside other work
_WARMUP = 3  # rounds, while clocks, the allocator and cuBLAS's choice of kernels settle


def time_backward(trial: Trial[TwoPaths], shape: BlockShape) -> None:
    """Time the paths in turns, in random order, and measure the bounds of 99 % intervals of their ratios.

    Raises:
        NotMeasured: the samples of the old path scatter as beside other work, the new path differs from itself by more
            than `noise_limit`, or `ratio_limit` is in the interval.
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
            {**arms, _AGAIN: arms[_NEW]},
            rounds=asked["rounds"],
            warmup=_WARMUP,
            seed=trial.seed,
            synchronize=torch.cuda.synchronize if trial.device != "cpu" else lambda: None,
        )
    (trial.artifacts / "timing.json").write_text(json.dumps(timing.as_json()))
    noise, slower = timing.ratio(_AGAIN, _NEW), timing.ratio(_NEW, _OLD)
    trial.measure(noise=[noise.low, noise.high])
    spread = timing.spread(_OLD)  # not of the new path, which could escape judgment by an unsteady pace
    if spread > _LARGEST_SPREAD:
        raise NotMeasured(
            f"this machine does other work: a slow sample of the old path takes {spread:.2f} times as long as a "
            f"fast one, and the limit is {_LARGEST_SPREAD}; run the claim alone"
        )
    if max(1 / noise.low, noise.high) > asked["noise_limit"]:
        raise NotMeasured(
            f"this machine is too noisy: the new path takes {noise.low:.3f} to {noise.high:.3f} of its own time, and "
            f"the limit is {asked['noise_limit']}"
        )
    if not slower.settles(asked["ratio_limit"]):
        raise NotMeasured(
            f"this machine cannot decide: the path takes {slower.low:.3f} to {slower.high:.3f} of the old path's time, "
            f"and the limit of {asked['ratio_limit']} is in that interval"
        )
    trial.measure(slower_low=slower.low, slower_high=slower.high)
