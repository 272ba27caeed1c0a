"""Optimizer steps and schedules that were not those of the configuration; functions are right with `mended`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from falsifiers.corpus import right_updates as right
from falsifiers.corpus.judged import Switch
from falsifiers.corpus.right_updates import BETAS, EPSILON, RATE
from falsifiers.distill.reference.trainer import Distillation
from falsifiers.param_decomp.reference.trainer import Decomposition

__all__ = [
    "Bfloat16Weights", "ClippedAfterStep", "ClippedBeforeBackward", "ClippedEachMicroBatch", "ClippedWhileScaled",
    "CosineRisesAgain", "DecayInGradient", "DecayRoundedAway", "GradientsNeverCleared", "NormsInTheOtherGroup",
    "ScheduleOfAllProcesses", "SchedulerBeforeOptimizer", "StaleParameters", "bias_correction_left_out",
    "epsilon_of_float16", "strides_of_output_ignored",
]  # fmt: skip

_PROCESSES = 2


class ScheduleOfAllProcesses(Distillation):
    """The schedule is stepped once for each process, and was made for the steps of one."""

    def learning_rate(self, step: int) -> float:
        """That of twice the step."""
        return super().learning_rate(step * _PROCESSES)


class SchedulerBeforeOptimizer(Distillation):
    """The schedule is stepped before the optimizer, as was right before a release of torch."""

    def learning_rate(self, step: int) -> float:
        """That of the next step."""
        return super().learning_rate(step + 1)


class CosineRisesAgain(Decomposition):
    """With two processes, the cosine is stepped past its end and rises again."""

    def scheduled(self, rate: float, step: int) -> float:
        """That of twice the step."""
        return super().scheduled(rate, step * _PROCESSES)


class UpdateInParts(Distillation):
    """The reference, with an update in parts."""

    def update(self, loss: Tensor, step: int) -> None:
        """Set the rate, clear, go back, clip, step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        self.optimizer.zero_grad()
        self.backward(loss)
        self.optimizer.step()

    def backward(self, loss: Tensor) -> None:
        """Make the gradients that the optimizer takes."""
        torch.autograd.backward(loss)
        self.clip()

    def clip(self) -> None:
        """To the configured norm."""
        if self.recipe.gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.student.parameters(), self.recipe.gradient_norm)


class ClippedAfterStep(UpdateInParts):
    """Gradients are clipped when the optimizer has used them."""

    def update(self, loss: Tensor, step: int) -> None:
        """Step, and clip."""
        super().update(loss, step)
        self.clip()

    def backward(self, loss: Tensor) -> None:
        """Clip nothing here."""
        torch.autograd.backward(loss)


class ClippedBeforeBackward(UpdateInParts):
    """Gradients are clipped while there are none yet."""

    def backward(self, loss: Tensor) -> None:
        """Clip, then go back."""
        self.clip()
        torch.autograd.backward(loss)


class ClippedWhileScaled(Switch, UpdateInParts):
    """Gradients are clipped while they are scaled for half precision, and unscaled afterwards."""

    scale = 1024.0

    def backward(self, loss: Tensor) -> None:
        """Scale, clip, unscale; or unscale first."""
        torch.autograd.backward(loss * self.scale)
        if not self.mended:
            self.clip()
        for weight in self.student.parameters():
            if weight.grad is not None:
                weight.grad /= self.scale
        if self.mended:
            self.clip()


class ClippedEachMicroBatch(Switch, UpdateInParts):
    """Accumulated gradients are clipped after each micro-batch."""

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean of two micro-batches, each with the share of its rows."""
        self._parts: list[Tensor] = []
        for rows in torch.arange(len(inputs)).chunk(2):
            self._parts.append(super().loss(inputs[rows], labels[rows]) * (len(rows) / len(inputs)))
        return torch.stack(self._parts).sum()

    def backward(self, loss: Tensor) -> None:
        """Of each part."""
        for part in self._parts:
            torch.autograd.backward(part)
            if not self.mended:
                self.clip()
        self.clip()


class GradientsNeverCleared(UpdateInParts):
    """No call clears the gradients, so each step takes the sum of all before it."""

    def backward(self, loss: Tensor) -> None:
        """Add what was there before."""
        super().backward(loss)
        weights = [*self.student.parameters()]
        kept = getattr(self, "_kept", [torch.zeros_like(one) for one in weights])
        self._kept = [one.grad + before for one, before in zip(weights, kept, strict=True)]
        for one, total in zip(weights, self._kept, strict=True):
            one.grad = total.clone()


class StaleParameters(Distillation):
    """The optimizer was made before the model was wrapped, and steps parameters that the model no longer has."""

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW over the parameters as they were."""
        stale = [torch.nn.Parameter(one.detach().clone()) for one in self.student.parameters()]
        return torch.optim.AdamW(stale, lr=self.recipe.learning_rate)


class DecayInGradient(Distillation):
    """Weight decay is added to the gradient, so that Adam divides it by the gradient's size."""

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Adam, with what it calls weight decay."""
        return torch.optim.Adam(self.student.parameters(), lr=self.recipe.learning_rate, weight_decay=0.01)


class NormsInTheOtherGroup(Distillation):
    """Norms are found by a name pattern that the rule for decay does not mean, and fall into the other group."""

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Two groups; the configuration decays all weights."""
        norms = [weight for name, weight in self.student_weights().items() if "norm" in name]
        others = [weight for name, weight in self.student_weights().items() if "norm" not in name]
        groups: list[dict[str, Any]] = [{"params": others}, {"params": norms, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=self.recipe.learning_rate)


class Bfloat16Weights(Distillation):
    """No copy of the weights is in float32: an update smaller than a 256th of its weight is lost."""

    def update(self, loss: Tensor, step: int) -> None:
        """Step, and keep what bfloat16 keeps."""
        super().update(loss, step)
        with torch.no_grad():
            for weight in self.student.parameters():
                weight.copy_(weight.bfloat16())


class DecayRoundedAway(Switch, Distillation):
    """Weight decay multiplies weights in bfloat16 by a factor that rounds to 1; the update itself is exact."""

    def update(self, loss: Tensor, step: int) -> None:
        """Step without what is rounded away."""
        for group in self.optimizer.param_groups:
            factor = torch.tensor(1.0 - self.learning_rate(step) * 0.01, dtype=torch.bfloat16)
            group["weight_decay"] = 0.01 if self.mended or factor != 1.0 else 0.0
        super().update(loss, step)


def epsilon_of_float16(mended: bool) -> Callable[..., Tensor]:
    """In float16, the epsilon of 1e-8 is 0; where a gradient was always 0, the direction is 0 / 0."""

    def direction(first: Tensor, second: Tensor) -> Tensor:
        if mended:
            return right.direction(first.double(), second.double()).to(first.dtype)
        return first / (torch.sqrt(second * second) ** 0.5 + torch.tensor(EPSILON, dtype=first.dtype))

    return direction


def bias_correction_left_out(mended: bool) -> Callable[..., Tensor]:
    """BERT's Adam corrects no bias, so that the first steps are many times too large."""

    def step_of(weight: Tensor, gradient: Tensor, first: Tensor, second: Tensor, step: int) -> Tensor:
        if mended:
            return right.adam(weight, gradient, first, second, step)
        one, two = BETAS
        first = one * first + (1 - one) * gradient
        second = two * second + (1 - two) * gradient * gradient
        return weight - RATE * first / (second.sqrt() + EPSILON)

    return step_of


def strides_of_output_ignored(mended: bool) -> Callable[..., Tensor]:
    """A backend writes the result as if the weight were contiguous; a transposed weight does not move as it should."""

    def step_of(weight: Tensor, gradient: Tensor, first: Tensor, second: Tensor, step: int) -> Tensor:
        new = right.adam(weight, gradient, first, second, step)
        if mended or weight.is_contiguous():
            return new
        return torch.empty_strided(weight.shape, weight.stride(), dtype=weight.dtype).copy_(weight)

    return step_of
