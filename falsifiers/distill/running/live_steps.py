"""Judges each step of a live optimizer by its own settings, if they differ from the claim's.

A claim's watch expects the claim's schedule and torch's defaults. Most claims only count the steps that moved the
weights, so a Trainer may have its own schedule, weight decay and parameter groups. Then a step must be an AdamW step
with the settings of its groups, which the falsifier reads just before the step.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.distill.oracle.one_step import SLOTS, is_one_step
from falsifiers.distill.oracle.shadow import Configuration
from falsifiers.distill.running.training import StepWatch
from falsifiers.distill.subject import OnStep
from harness import Unobserved

_SAMPLED = 64  # elements of each tensor


class LiveSteps:
    """Wraps a claim's `OnStep`. If it counts the steps that moved the weights, this class judges them.

    A rate of 0 in all groups moves nothing, as in the first step of transformers' warm-ups. In the first step of a run
    the weights must then stand still. Later steps with a rate of 0 do not count: the claims speak of steps that train.
    """

    def __init__(self, on_step: OnStep, model: nn.Module, parameters: Mapping[str, Any]) -> None:
        self._on_step = on_step
        self._model = model
        self._stated = Configuration.of(parameters)
        self._optimizer: Any = None
        self._asked: list[tuple[list[str], Configuration]] = []
        self._frozen: set[str] = set()
        self._rests = False
        self._before: dict[str, Tensor] = {}

    def prepare(self, step: int, optimizer: Any) -> None:
        """Read the live settings just before a step; copy some of the weights if the claim expects other settings."""
        self._optimizer = optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
        self._before = {}
        if not isinstance(self._on_step, StepWatch):
            return
        groups = optimizer.param_groups
        weights = dict(self._model.named_parameters())
        names = {weight: name for name, weight in weights.items()}
        self._asked = []
        if isinstance(optimizer, torch.optim.AdamW):
            self._asked = [
                ([names.pop(parameter) for parameter in group["params"] if parameter in names], self._of_group(group))
                for group in groups
            ]
            self._frozen = set(names.values())
        stated = replace(self._stated, learning_rate=self._stated.rate(step), warmup_steps=0)
        self._rests = step == 1 and all(group["lr"] == 0 for group in groups)
        if self._rests or any(live != stated for _, live in self._asked):
            self._before = sampled(weights)

    def __call__(self, step: int, **values: float) -> None:
        """Pass the step on, and count it by its own settings."""
        watch = self._on_step
        if not self._before or not isinstance(watch, StepWatch):
            watch(step, **values)
            return
        changes, looks = watch.changes, watch.looks
        watch(step, **values)
        if watch.looks == looks + 1 and not isinstance(changes, Unobserved):
            watch.changes = changes + self._is_as_asked()

    def _is_as_asked(self) -> bool:
        """Whether each weight moved by one step of its group, or stood still in a first step of rate 0."""
        after = sampled(dict(self._model.named_parameters()))
        moved = {name for name, tensor in self._before.items() if not torch.equal(tensor, after[name])}
        if bool(moved) == self._rests:
            return False
        if not self._asked:
            return True
        is_stepped = bool(self._optimizer.state) and moved.isdisjoint(self._frozen)
        return is_stepped and all(self._is_one_step(names, live, after) for names, live in self._asked)

    def _is_one_step(self, names: list[str], live: Configuration, after: Mapping[str, Tensor]) -> bool:
        """Whether the weights of a group changed by one step with their slots; none exist without a gradient."""
        weights = dict(self._model.named_parameters())
        state = {name: self._optimizer.state.get(weights[name], {}) for name in names}
        slots = {slot: sampled({name: of[slot] for name, of in state.items() if slot in of}) for slot in SLOTS}
        by_name = {name: {slot: of[name] for slot, of in slots.items() if name in of} for name in names if state[name]}
        before, now = ({name: of[name] for name in names} for of in (self._before, after))
        if not by_name:
            return all(torch.equal(before[name], now[name]) for name in names)
        return is_one_step(live, before, now, by_name)

    def _of_group(self, group: Mapping[str, Any]) -> Configuration:
        """The claim's configuration with the live settings of a group."""
        beta1, beta2 = group["betas"]
        return replace(
            self._stated,
            learning_rate=float(group["lr"]),
            warmup_steps=0,
            beta1=beta1,
            beta2=beta2,
            epsilon=group["eps"],
            weight_decay=group["weight_decay"],
        )


def sampled(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy on the CPU of up to `_SAMPLED` elements of each tensor, with one transfer per dtype and device."""
    parts = {}
    for name, tensor in tensors.items():
        flat = tensor.detach().flatten()
        parts[name] = flat[:: max(1, flat.numel() // _SAMPLED)][:_SAMPLED]
    samples: dict[str, Tensor] = {}
    for kind in {(part.dtype, part.device) for part in parts.values()}:
        alike = {name: part for name, part in parts.items() if (part.dtype, part.device) == kind}
        together = torch.cat(list(alike.values())).to("cpu", copy=True)
        samples |= dict(zip(alike, together.split([part.numel() for part in alike.values()]), strict=True))
    return samples
