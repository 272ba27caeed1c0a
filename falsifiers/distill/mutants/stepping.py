"""Subjects that make other numbers of steps than they were asked for: one known defect each, and the real bug."""

from __future__ import annotations

from torch import Tensor

from falsifiers.distill.reference import Distillation
from falsifiers.distill.subject import OnStep, Run

__all__ = [
    "CappedAtHundred",
    "ClampedSteps",
    "DoubledTens",
    "MicroSteps",
    "NegativeIsNothing",
    "OneStepLess",
    "OneStepMore",
    "UnreadSteps",
    "ZeroIsEndless",
    "ZeroIsNothing",
    "ZeroIsOneEpoch",
]

_STEPS_AN_EPOCH = 31  # 1000 examples in batches of 32, as hard-coded in the trainer of SPEC-DISTILL-001
_ENDLESS = 1_000_000_000


class UnreadSteps(Distillation):
    """The limit is accepted and ignored: always fifty steps (#1888 landed the contract and not the code)."""

    def steps_to_make(self) -> int:
        """What the trainer did before there was a limit."""
        return 50


class OneStepMore(Distillation):
    """The loop runs up to and including the limit, from zero."""

    def steps_to_make(self) -> int:
        """One too many."""
        return super().steps_to_make() + 1


class OneStepLess(Distillation):
    """The limit is checked before the step is counted; where one step is asked for, one is made."""

    def steps_to_make(self) -> int:
        """One too few."""
        return max(1, super().steps_to_make() - 1)


class ClampedSteps(Distillation):
    """A limit above the default is cut to the default."""

    def steps_to_make(self) -> int:
        """At most fifty."""
        return min(50, super().steps_to_make())


class CappedAtHundred(Distillation):
    """A limit above a hundred is cut to a hundred."""

    def steps_to_make(self) -> int:
        """At most a hundred."""
        return min(100, super().steps_to_make())


class DoubledTens(Distillation):
    """The optimizer steps twice where the progress bar is drawn, at every tenth step."""

    def update(self, loss: Tensor, step: int) -> None:
        """Step, and step again."""
        super().update(loss, step)
        if step % 10 == 0:
            self.optimizer.step()


class MicroSteps(Distillation):
    """Steps are counted in halves: gradients are accumulated over two of them, and only the second moves weights."""

    def update(self, loss: Tensor, step: int) -> None:
        """Accumulate, then step."""
        if step % 2 == 0:
            super().update(loss, step)


class ZeroIsEndless(Distillation):
    """Zero steps mean no limit: training never ends."""

    def steps_to_make(self) -> int:
        """Practically endless."""
        return super().steps_to_make() if self.recipe.steps else _ENDLESS


class ZeroIsOneEpoch(Distillation):
    """Zero is taken for 'not given', and one epoch is trained."""

    def steps_to_make(self) -> int:
        """What `steps or default` gives."""
        return super().steps_to_make() if self.recipe.steps else _STEPS_AN_EPOCH


class ZeroIsNothing(Distillation):
    """Zero steps are made with success, and an untrained student is exported."""

    def distill(self, on_step: OnStep) -> Run:
        """Skip the loop."""
        if self.recipe.steps:
            return super().distill(on_step)
        return Run(0, (), (), self.export(self.directory / "model.safetensors", self.metadata(0, 0.0)))


class NegativeIsNothing(Distillation):
    """Zero is refused, and a negative number makes no step and a success: a range that is empty."""

    def distill(self, on_step: OnStep) -> Run:
        """Skip the loop."""
        if self.recipe.steps >= 0:
            return super().distill(on_step)
        return Run(0, (), (), self.export(self.directory / "model.safetensors", self.metadata(0, 0.0)))
