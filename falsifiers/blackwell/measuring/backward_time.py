"""How long the backward of all layers takes on the new path, against the old one and against itself."""

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
_WARMUP = 3  # rounds: clocks, the allocator and cuBLAS's choice of kernels settle in the first


def time_backward(trial: Trial[TwoPaths], shape: BlockShape) -> None:
    """Let the arms take turns in random order; measures the bounds of 99 % intervals of the ratios within rounds.

    Raises:
        NotMeasured: the new path differs from itself by as much as would matter, or the limit lies in the interval.
    """
    asked = trial.parameters
    generator = torch.Generator().manual_seed(trial.seed)
    size = (1, asked["largest_tokens"], shape.hidden)
    x, gradient = (torch.randn(size, generator=generator).to(trial.device) for _ in range(2))
    layers = [new_weights(shape, layer, dtype=torch.float32, device=trial.device) for layer in range(asked["layers"])]

    def arm(path: Path) -> Callable[[], None]:
        """The backward of all layers, one after the other, with the forward of each done beforehand."""
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
    if max(1 / noise.low, noise.high) > asked["noise_limit"]:
        raise NotMeasured(
            f"this machine is too restless: the new path takes {noise.low:.3f} to {noise.high:.3f} of its own time; "
            f"{asked['noise_limit']} is the most that means anything"
        )
    if not slower.settles(asked["ratio_limit"]):
        raise NotMeasured(
            f"this machine cannot tell: the new path takes {slower.low:.3f} to {slower.high:.3f} of the old one's, "
            f"and the limit of {asked['ratio_limit']} lies within"
        )
    trial.measure(slower_low=slower.low, slower_high=slower.high)
