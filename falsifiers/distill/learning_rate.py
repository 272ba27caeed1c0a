"""F-DISTILL-LR-001: the configured learning rate is the one that moves the weights, in every tensor and step."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from falsifiers.distill.inspection import snapshot
from falsifiers.distill.subject import Distillation
from falsifiers.distill.watch import StepWatch, read_back
from harness import Trial

__all__ = ["falsify"]


def falsify(trial: Trial[Distillation]) -> None:
    """Read the rate off the weights: AdamW's first step moves an element by the rate times |g| / (|g| + 1e-8).

    So the largest movement of a tensor's elements in the first step is the rate itself, whatever the gradient was,
    up to weight decay and rounding; elements that start at zero have neither.
    """
    moves: list[dict[str, float]] = []
    with trial.subject_fault():
        weights = snapshot(trial.subject.student_weights())
    zero = {name for name, weight in weights.items() if not weight.any()}
    watch = StepWatch(trial)

    def on_step(step: int, **values: float) -> None:
        nonlocal weights
        watch(step, **values)
        now = snapshot(trial.subject.student_weights())
        with trial.falsifier_fault():
            moves.append(_largest(weights, now))
            weights = now

    with trial.subject_fault():
        trial.subject.distill(on_step=on_step)
    read_back(trial, watch)
    rate, warmup = trial.parameters["learning_rate"], max(1, trial.parameters["warmup_steps"])
    first = rate / warmup
    exact = max((moves[0][name] for name in zero), default=float("nan")) if moves else float("nan")
    trial.measure(
        first_rate=exact,
        first_rate_error=abs(exact / first - 1.0),
        first_rate_errors_of_tensors=[abs(move / first - 1.0) for move in moves[0].values()] if moves else [],
        rates=[max(step.values()) / (rate * min(1.0, number / warmup)) for number, step in enumerate(moves, start=1)],
    )


def _largest(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, float]:
    """By how much the element that moved most moved, of each tensor; float64."""
    return {name: float((after[name].double() - before[name].double()).abs().max()) for name in before}
