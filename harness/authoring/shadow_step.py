"""Compares one training step of a subject with the same step by an independent implementation, the shadow.

The shadow computes in float64, from copies that were taken before the step. This module selects the steps to check and
measures the error of named tensors.

    steps = chosen_steps(seed, last=50, around=(5, 25))
    ratios = differences("update", actual, expected, scale=updates, roundings=2)
    print(worst(ratios)["update"])      # Difference(quantity='update', tensor='model.norm.weight', ratio=1.2e-06)
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.authoring.toolkit_log import log

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["NOISE", "Difference", "chosen_steps", "difference", "differences", "relative_difference", "worst"]

NOISE = 3.0
"""Allowed error, in multiples of the shadow's own rounding error. Two orders of summation differ by about 1.4."""


@dataclass(frozen=True)
class Difference:
    """The relative error of one tensor or number.

    Attributes:
        quantity: what was compared, such as `update`.
        tensor: the tensor's name; empty for a number.
        ratio: the norm of the error divided by the expected norm; infinite if one of the two is missing, has another
            shape, or is not finite.
    """

    quantity: str
    tensor: str
    ratio: float


def chosen_steps(seed: int, last: int, around: Iterable[int] = (), drawn: int = 3) -> tuple[int, ...]:
    """Return the steps to check, sorted, counted from 1.

    Call this after the subject has started, so that the subject cannot know the choice.

    Args:
        seed: seed of the drawn steps.
        last: the number of steps of the run.
        around: steps after which something happens, such as a checkpoint. Each is checked, and so is the next step.
        drawn: how many more steps to draw; fewer if the run has fewer.
    """
    chosen = {1, last, *(step + after for step in around for after in (0, 1))} & set(range(1, last + 1))
    others = sorted(set(range(1, last + 1)) - chosen)
    sampled = sorted(random.Random(seed).sample(others, min(drawn, len(others))))  # noqa: S311
    log(f"checks the steps {sorted(chosen)}, and {sampled}, drawn with seed {seed}")
    return tuple(sorted(chosen.union(sampled)))


def difference(quantity: str, measured: float, expected: float) -> Difference:
    """Return the difference of two numbers, relative to the expected one."""
    error = abs(measured - expected)
    return Difference(quantity, "", _ratio(error, abs(expected)))


def differences(
    quantity: str,
    actual: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    scale: Mapping[str, Tensor] | None = None,
    *,
    roundings: int = 0,
    rounded: Mapping[str, Tensor] | None = None,
) -> list[Difference]:
    """Return the `relative_difference` of each named tensor. It is infinite for a tensor that only one side has.

    Args:
        quantity: the name of what is compared.
        actual: the subject's tensors.
        expected: the shadow's tensors.
        scale: the tensors whose norms are the denominators, by name; the expected tensors if None.
        roundings, rounded: see `relative_difference`; `rounded` by name.
    """
    scale = expected if scale is None else scale
    differing = []
    for name in sorted(actual.keys() | expected.keys()):
        ratio = math.inf
        if name in actual and name in expected:
            rounded_tensor = None if rounded is None else rounded[name]
            ratio = relative_difference(
                actual[name], expected[name], scale[name], roundings=roundings, rounded=rounded_tensor
            )
        differing.append(Difference(quantity, name, ratio))
    return differing


def relative_difference(
    actual: Tensor, expected: Tensor, scale: Tensor, *, roundings: int = 0, rounded: Tensor | None = None
) -> float:
    """Return `norm(actual - expected) / norm(scale)` with Euclidean norms, computed in float64.

    Args:
        actual: the subject's tensor.
        expected: the shadow's tensor, of the same shape; with another shape the result is infinite.
        scale: the tensor whose norm is the denominator.
        roundings: the error of so many roundings to the dtype of `actual` is subtracted from each element's error. In
            bfloat16, an update that is small beside its weight may round to zero.
        rounded: the shadow's result in the subject's dtype. `NOISE` times its error is subtracted from the norm. Where
            terms cancel, a correct gradient in bfloat16 is mostly rounding error.
    """
    import torch

    if actual.shape != expected.shape:
        return math.inf
    expected = expected.detach().double()
    error = (actual.detach().to(expected) - expected).abs()
    if roundings:
        error = (error - roundings * torch.finfo(actual.dtype).eps / 2 * expected.abs()).clamp_min(0)
    noise = 0.0 if rounded is None else NOISE * float((rounded.detach().to(expected) - expected).norm())
    size = float(error.norm())
    return _ratio(size if math.isnan(size) else max(0.0, size - noise), float(scale.detach().double().norm()))


def worst(differences: Iterable[Difference]) -> dict[str, Difference]:
    """Return the largest difference of each quantity, in order of first occurrence."""
    largest: dict[str, Difference] = {}
    for difference in differences:
        if difference.quantity not in largest or difference.ratio > largest[difference.quantity].ratio:
            largest[difference.quantity] = difference
    for name, difference in largest.items():
        place = difference.tensor and f", {difference.tensor}"
        log(f"worst {name}: {difference.ratio:.3g} of the expected size{place}", f"worst {name}")
    return largest


def _ratio(error: float, size: float) -> float:
    """Return error / size; 0 if the error is 0, infinite if it is not finite or only the size is 0."""
    if error == 0.0:
        return 0.0
    return error / size if math.isfinite(error) and size > 0.0 else math.inf
