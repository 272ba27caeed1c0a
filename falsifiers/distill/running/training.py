"""Watches a run: the number of steps, whether each moved the weights, and what the run used."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from falsifiers.distill.oracle.one_step import SLOTS, is_one_step
from falsifiers.distill.oracle.shadow import Configuration
from falsifiers.distill.running.shown import shown
from falsifiers.distill.subject import Distillation, Run
from harness import NotObserved, Trial, Unobserved, first_observed, propagates

Slots = Mapping[str, Mapping[str, Tensor]]

_SAMPLED = 64  # elements of each tensor; AdamW moves all elements that have a gradient, so few are enough


class Overrun(Exception):
    """A run made far more steps than requested, and was stopped."""


class StepWatch:
    """An `OnStep` that counts steps, and every `watch_every` steps compares the live weights with the last check.

    If it checks every step and the subject shows its optimizer, weights count as changed only if they changed by
    exactly one step of AdamW. After `most` steps it raises `Overrun`, so that the trial does not wait for an endless
    run.

    Attributes:
        steps: the number of steps that the subject reported.
        changes: the number of checks at which the weights had changed; hidden if a check failed.
        looks: the number of checks, without the first.
    """

    def __init__(self, trial: Trial[Any], subject: Distillation | None = None, most: float = math.inf) -> None:
        """Read the weights of the trial's subject, or of another. That may raise: call this inside `subject_fault`.

        Only the steps of the trial's own subject enter the series.
        """
        self._trial = trial
        self._subject: Distillation = trial.subject if subject is None else subject
        self._most = most
        self._every = trial.parameters["watch_every"]
        self._configuration = Configuration.of(trial.parameters)
        self._first = _glimpse(self._subject.student_weights())
        self._seen = self._first
        self.steps = 0
        self.changes = 0
        self.looks = 0
        self._uncounted = 0

    @property
    def made(self) -> int:
        """The number of steps by the optimizer's own count if it is shown, else as the subject reported them."""
        return self.steps + self._uncounted

    @property
    def unmoved(self) -> list[str]:
        """The names of the tensors that were equal at the first and the last check; hidden if a check failed."""
        return _unmoved(self._first, self._seen)

    def __call__(self, step: int, **values: float) -> None:
        """Count a step and pass its values on to the trial's series."""
        with self._trial.falsifier_fault():  # the subject calls this, but what follows is the falsifier's code
            self.steps += 1
            if self._subject is self._trial.subject:
                self._trial.step(step, **values)
            due = self.steps % self._every == 0 and not isinstance(self.changes, Unobserved)
        if due:
            weights, slots = self._subject.student_weights(), shown(self._subject, "optimizer_state")
            with self._trial.falsifier_fault():
                now, state = _glimpse(weights), _glimpse_of_slots(slots)
                self.changes += _both(_differ(self._seen, now), first_observed(self._is_one_step(now, state), True))
                self._uncounted = first_observed(_count(state) - self.steps, 0)
                self._seen = now
                self.looks += 1
        if self.steps >= self._most:
            raise Overrun

    @propagates
    def _is_one_step(self, now: Mapping[str, Tensor], state: Slots) -> bool:
        return self._every > 1 or is_one_step(self._configuration, self._seen, now, state)


W = TypeVar("W", bound=StepWatch)


@dataclass(frozen=True)
class Training(Generic[W]):
    """A run that was watched to its end."""

    watch: W
    run: Run

    @property
    def steps(self) -> int:
        """The counted steps; hidden if not every step was reported."""
        return self.run.if_every_step_is_reported(self.watch.steps)

    @property
    def changes(self) -> int:
        """The number of checks at which the weights had changed; hidden if a check failed, or no step was reported."""
        return self._looked_at(self.watch.changes)

    @property
    def unmoved(self) -> list[str]:
        """The names of the tensors that never changed; hidden as `changes` is."""
        return self._looked_at(self.watch.unmoved)

    def _looked_at(self, value: Any) -> Any:
        if self.run.is_heard and not self.watch.looks and not isinstance(value, Unobserved):
            return Unobserved(
                f"its output tells of no step after which to look at its weights (of {self.watch.steps} told)"
            )
        return value


def train(trial: Trial[Any], watching: Callable[[Trial[Any]], W] = StepWatch) -> Training[W]:  # type: ignore[assignment]
    """Train the trial's subject to its end under a watch; record what the run used."""
    with trial.subject_fault():
        watch = watching(trial)
        run = trial.subject.distill(on_step=watch)
    read_back(trial, watch.made)
    return Training(watch, run)


def read_back(trial: Trial[Any], steps: int) -> None:
    """Resolve steps as counted, and device and dtype of the live parameters instead of the configured ones.

    If parameters differ, all values are named, as in `cpu+cuda`, which no request equals.
    """
    with trial.subject_fault():
        weights = trial.subject.student_weights()
    trial.resolve(device=_devices(weights), dtype=_dtypes(weights), steps=steps)


@propagates
def _devices(weights: Mapping[str, Tensor]) -> str:
    return "+".join(sorted({weight.device.type for weight in weights.values()}))


@propagates
def _dtypes(weights: Mapping[str, Tensor]) -> str:
    return "+".join(sorted({str(weight.dtype).removeprefix("torch.") for weight in weights.values()}))


@propagates
def _unmoved(first: Mapping[str, Tensor], seen: Mapping[str, Tensor]) -> list[str]:
    return [name for name, weight in first.items() if name in seen and _same(weight, seen[name])]


@propagates
def _differ(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() != second.keys() or not all(_same(second[name], first[name]) for name in second)


@propagates
def _both(first: bool, second: bool) -> bool:
    return first and second


@propagates
def _glimpse(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy on the CPU of up to `_SAMPLED` elements of every tensor, evenly spaced, by name."""
    glimpses = {}
    for name, weight in sorted(weights.items()):
        flat = weight.detach().flatten()
        glimpses[name] = flat[:: max(1, flat.numel() // _SAMPLED)][:_SAMPLED].to("cpu", copy=True)
    return glimpses


@propagates
def _glimpse_of_slots(slots: Slots) -> Slots:
    """The same for the optimizer's slots, by parameter.

    Raises:
        NotObserved: there are none.
    """
    if not slots:
        raise NotObserved("the optimizer shows no slots")
    wanted = {slot: {name: of[slot] for name, of in slots.items() if slot in of} for slot in SLOTS}
    glimpses = {slot: _glimpse(of) for slot, of in wanted.items()}
    return {name: {slot: of[name] for slot, of in glimpses.items() if name in of} for name in slots}


@propagates
def _count(state: Slots) -> int:
    """The largest number of steps that the optimizer has counted for a parameter.

    Raises:
        NotObserved: it counts none.
    """
    counts = [int(of["step"]) for of in state.values() if "step" in of]
    if not counts:
        raise NotObserved("the optimizer's slots count no steps")
    return max(counts)


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are equal to the bit; a NaN equals itself."""
    return torch.equal(first.view(torch.uint8), second.view(torch.uint8))
