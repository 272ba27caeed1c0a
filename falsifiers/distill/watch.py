"""Watching a run from outside: how many steps there were, and whether each of them moved the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from falsifiers.distill.subject import Distillation
from harness import NotShown, Trial

__all__ = ["Overrun", "StepWatch", "read_back", "read_back_steps"]

_SAMPLED = 64  # elements of each tensor; AdamW moves all elements that have a gradient, so few are enough


class Overrun(Exception):
    """A run made more steps than anybody could have asked for, and was ended."""


class StepWatch:
    """An `OnStep` that counts for itself, and every `watch_every` steps compares the live weights with its last look.

    After `most` steps it raises `Overrun`: a run that does not end by itself is no reason to wait.

    Attributes:
        steps: how often the subject said that it made a step.
    """

    def __init__(self, trial: Trial[Distillation], subject: Distillation | None = None, most: float = math.inf) -> None:
        """Take the first look at the trial's subject, or at another; its part in it may raise, so do this inside
        `subject_fault`. Only of the trial's own subject are the steps reported to the series."""
        self._trial = trial
        self._subject = trial.subject if subject is None else subject
        self._most = most
        self._every = trial.parameters["watch_every"]
        self._first: Mapping[str, Tensor] = {}
        self._hidden: NotShown | None = None
        try:
            self._first = _glimpse(self._subject.student_weights())
        except NotShown as reason:
            self._hidden = reason
        self._seen = self._first
        self._changes = 0
        self._looks = 0
        self.steps = 0

    @property
    def changes(self) -> int:
        """At how many of the looks the weights differed from the look before; NotShown where a look was denied."""
        if self.steps:
            self._see_that_we_looked()
        return self._changes

    @property
    def unmoved(self) -> list[str]:
        """Names of the tensors that at the last look were as at the first; NotShown where a look was denied."""
        self._see_that_we_looked()
        return [name for name, first in self._first.items() if name in self._seen and _same(first, self._seen[name])]

    def __call__(self, step: int, **values: float) -> None:
        """Count a step and hand its values on to the trial's series."""
        with self._trial.falsifier_fault():  # the subject calls us, but what follows is our own code
            self.steps += 1
            if self._subject is self._trial.subject:
                self._trial.step(step, **values)
            due = self.steps % self._every == 0
        if due and self._hidden is None:
            self._look()
        if self.steps >= self._most:
            raise Overrun

    def _see_that_we_looked(self) -> None:
        """NotShown where a look was denied, or a subject that works elsewhere told of no step at which to look."""
        if self._hidden is not None:
            raise self._hidden
        if self._trial.is_elsewhere and not self._looks:
            raise NotShown(f"its output tells of no step after which to look at its weights (of {self.steps} told)")

    def _look(self) -> None:
        try:
            weights = self._subject.student_weights()
        except NotShown as reason:
            self._hidden = reason
        else:
            with self._trial.falsifier_fault():
                now = _glimpse(weights)
                self._looks += 1
                self._changes += now.keys() != self._seen.keys() or not all(
                    _same(now[name], self._seen[name]) for name in now
                )
                self._seen = now


def read_back(trial: Trial[Distillation], watch: StepWatch) -> None:
    """Resolve what the trial's subject ran on, and the steps that the watch counted.

    Of a subject that works elsewhere, no process can be asked: what ran is then what its output says of itself.
    """
    if trial.is_elsewhere:
        trial.resolve(**trial.subject.ran())  # type: ignore[attr-defined]
        return
    read_back_steps(trial, watch.steps)


def read_back_steps(trial: Trial[Any], steps: int) -> None:
    """Resolve steps as counted, and device and dtype as the live parameters have them, not as configuration says.

    Parameters that disagree are all named, as in `cpu+cuda`, which no request equals.
    """
    with trial.subject_fault():
        weights = trial.subject.student_weights().values()
    trial.resolve(
        device="+".join(sorted({weight.device.type for weight in weights})),
        dtype="+".join(sorted({str(weight.dtype).removeprefix("torch.") for weight in weights})),
        steps=steps,
    )


def _glimpse(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy on the CPU of up to `_SAMPLED` elements of every tensor, spread over it evenly, by name."""
    glimpses = {}
    for name, weight in sorted(weights.items()):
        flat = weight.detach().flatten()
        glimpses[name] = flat[:: max(1, flat.numel() // _SAMPLED)][:_SAMPLED].to("cpu", copy=True)
    return glimpses


def _same(one: Tensor, other: Tensor) -> bool:
    """Equality to the bit; a NaN that stays is no movement."""
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))
