"""F-DISTILL-LR-001: the configured learning rate is the one that moves the weights, in every tensor and step."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.distill.measuring.weight_comparison import snapshot
from falsifiers.distill.running.training import StepWatch, read_back
from falsifiers.distill.subject import Distillation
from harness import NotShown, Trial, look

__all__ = ["falsify"]

_SAMPLED = 256  # elements of each tensor, spread over it evenly, whose steps are computed again
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # AdamW's usual ones; other betas change a step's direction by percents


def falsify(trial: Trial[Distillation]) -> None:
    """Read the rate off the weights: AdamW's first step moves an element by the rate times |g| / (|g| + 1e-8).

    So the largest movement of a tensor's elements in the first step is the rate itself for any gradient, up to weight
    decay and rounding. Elements that start at zero have neither. For later steps, the direction is computed again from
    the gradients that were left on the weights; how far a tensor went along it is its rate.
    """
    moves: list[dict[str, float]] = []
    adams: dict[str, _Adam] = {}
    errors: list[float] = []
    norms: list[float] = []
    rate, warmup = trial.parameters["learning_rate"], max(1, trial.parameters["warmup_steps"])
    with trial.subject_fault():
        weights = snapshot(trial.subject.student_weights())
    zero = {name for name, weight in weights.items() if not weight.any()}
    watch = StepWatch(trial)

    def on_step(step: int, **values: float) -> None:
        nonlocal weights
        watch(step, **values)
        live = trial.subject.student_weights()
        now = snapshot(live)
        with trial.falsifier_fault():
            moves.append(_largest(weights, now))
            gradients = {name: weight.grad for name, weight in live.items() if weight.grad is not None}
            asked = rate * min(1.0, watch.steps / warmup)
            if gradients:
                norms.append(sum(float(one.double().square().sum()) for one in gradients.values()) ** 0.5)
                rates = [
                    adams.setdefault(name, _Adam()).rate(gradients[name], weights[name], now[name])
                    if name in gradients
                    else 0.0
                    for name in live
                ]
                errors.append(_worst([abs(one / asked - 1.0) for one in rates]))
            weights = now

    with trial.subject_fault():
        trial.subject.distill(on_step=on_step)
    read_back(trial, watch.steps)
    first = rate / warmup
    exact = max((moves[0][name] for name in zero), default=float("nan")) if moves else float("nan")
    trial.measure(
        first_rate=exact,
        first_rate_error=abs(exact / first - 1.0),
        first_rate_errors_of_tensors=[abs(move / first - 1.0) for move in moves[0].values()] if moves else [],
        rates=[max(step.values()) / (rate * min(1.0, number / warmup)) for number, step in enumerate(moves, start=1)],
    )
    limit = trial.parameters["gradient_norm"]
    steps = len(moves)
    trial.measure(
        rate_errors=_of_every_step(errors, steps),
        gradient_norm_over_limit=_worst(_of_every_step(norms, steps)) / limit if limit else 0.0,
    )


class _Adam:
    """AdamW's moments of some elements of one tensor, in float64."""

    def __init__(self) -> None:
        """Start before the first step."""
        self._steps = 0
        self._first = self._second = torch.zeros(())

    def rate(self, gradient: Tensor, before: Tensor, after: Tensor) -> float:
        """The learning rate of a step with this gradient: the multiple of AdamW's direction that the elements moved.

        Weight decay moves them in proportion to themselves, so both are fitted, by least squares.
        """
        gradient, before, after = (_spread(tensor) for tensor in (gradient, before, after))
        self._steps += 1
        self._first = _BETAS[0] * self._first + (1 - _BETAS[0]) * gradient
        self._second = _BETAS[1] * self._second + (1 - _BETAS[1]) * gradient.square()
        mean, square = (
            moment / (1 - beta**self._steps) for moment, beta in zip((self._first, self._second), _BETAS, strict=True)
        )
        direction = mean / (square.sqrt() + _EPSILON)
        directions, moved = torch.stack([direction, before], dim=1), (before - after).unsqueeze(1)
        if not (directions.isfinite().all() and moved.isfinite().all()):
            return math.nan
        return float(torch.linalg.lstsq(directions, moved, driver="gelsd").solution[0])


@look
def _of_every_step(values: list[float], steps: int) -> list[float]:
    if len(values) < steps:
        raise NotShown(
            "this subject leaves no gradients on its weights, and the rate of a step follows from them alone"
        )
    return values


@look
def _worst(numbers: list[float]) -> float:
    """The largest number; NaN if one is NaN, which max() would lose."""
    return float(torch.tensor(numbers, dtype=torch.float64).max())


def _spread(tensor: Tensor) -> Tensor:
    """Up to `_SAMPLED` elements of a tensor, spread over it evenly, on the CPU in float64."""
    flat = tensor.detach().flatten()
    chosen = torch.linspace(0, flat.numel() - 1, min(_SAMPLED, flat.numel()), dtype=torch.float64).long()
    return flat[chosen.to(flat.device)].to("cpu", torch.float64)


def _largest(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, float]:
    """For each tensor, the largest movement of one of its elements, in float64."""
    return {name: float((after[name].double() - before[name].double()).abs().max()) for name in before}
