"""Subjects whose step is not the one that they report or that is configured: one known defect each."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.config import new_model
from falsifiers.distill.reference.loss import distillation_loss
from falsifiers.distill.subject import OnStep, Run
from harness import Setting

__all__ = [
    "AnotherActivation",
    "BatchOfOneSeed",
    "BatchTransposed",
    "ClippedByValue",
    "CrossEntropyUpdates",
    "DivergenceReversed",
    "DropsHalfAsMuch",
    "LastRowDropped",
    "LowRankStart",
    "MaximumOfSquares",
    "NeverInTraining",
    "NoDecay",
    "NoisyGradient",
    "NormStandsStill",
    "NumbersFromZero",
    "OneMask",
    "PeakRateTold",
    "PenaltyInsteadOfDecay",
    "QuickSquares",
    "SmoothedLoss",
    "SpeedOfARow",
    "StopsEarly",
    "TransposedGradient",
    "WideStart",
]


class _ReportsAnother(Distillation):
    """Reports the right loss, and steps along the gradient of another one."""

    def objective(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """What the step minimises."""
        raise NotImplementedError

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """The value of the one, the gradient of the other."""
        with torch.no_grad():
            reported = super().loss(inputs, labels, step)
        student = self.student(input_ids=inputs, use_cache=False).logits
        other = self.objective(student, self.teacher_logits(inputs), labels)
        return other + (reported - other).detach()


class CrossEntropyUpdates(_ReportsAnother):
    """The teacher's part is in the report and not in the update."""

    def objective(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """The cross entropy with its weight."""
        alpha = self.recipe.alpha
        return alpha * distillation_loss(student, teacher, labels, alpha=1.0, temperature=1.0)


class DivergenceReversed(_ReportsAnother):
    """The update takes KL(student || teacher); at T = 4 its value is almost the same."""

    def objective(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """The two parts apart, with the second one's arguments exchanged."""
        alpha, temperature = self.recipe.alpha, self.recipe.temperature
        surprise = distillation_loss(student, teacher, labels, alpha=1.0, temperature=1.0)
        reverse = distillation_loss(teacher, student, labels, alpha=0.0, temperature=temperature)
        return alpha * surprise + (1 - alpha) * reverse


class LastRowDropped(_ReportsAnother):
    """The last row is a micro-batch of its own, whose gradient is lost."""

    def objective(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """The mean over the other rows."""
        recipe = self.recipe
        return distillation_loss(
            student[:-1], teacher[:-1], labels[:-1], alpha=recipe.alpha, temperature=recipe.temperature
        )


class _ChangedGradient(Distillation):
    """Something happens to the gradients between the backward pass and clipping."""

    only = ""
    """The end of the names of the tensors that it happens to."""

    def __init__(self, setting: Setting) -> None:
        """Hook it in."""
        super().__init__(setting)
        for name, weight in self.student_weights().items():
            if name.endswith(self.only):
                weight.register_hook(self.changed)

    def changed(self, gradient: Tensor) -> Tensor:
        """The defect."""
        raise NotImplementedError


class TransposedGradient(_ChangedGradient):
    """One square projection takes its gradient transposed, so that no norm changes."""

    only = "layers.1.self_attn.o_proj.weight"

    def changed(self, gradient: Tensor) -> Tensor:
        """The other way round."""
        return gradient.T.clone()


class NoisyGradient(_ChangedGradient):
    """Noise of a thousandth of its size is added to each gradient."""

    def changed(self, gradient: Tensor) -> Tensor:
        """A little of it."""
        generator = torch.Generator(gradient.device).manual_seed(self.steps_made)
        noise = torch.randn(gradient.shape, generator=generator, device=gradient.device, dtype=gradient.dtype)
        return gradient + 1e-3 * gradient.norm() / gradient.numel() ** 0.5 * noise


class ClippedByValue(_ChangedGradient):
    """The limit on the norm is a limit on each element."""

    def changed(self, gradient: Tensor) -> Tensor:
        """Cut the largest elements of each tensor."""
        return gradient.clamp(-0.5 * gradient.abs().max(), 0.5 * gradient.abs().max())


class NormStandsStill(Distillation):
    """In the last fifth of the run the last norm no longer moves, although its optimizer state does."""

    def update(self, loss: Tensor, step: int) -> None:
        """Put it back."""
        norm = self.student.model.norm.weight
        before = norm.detach().clone()
        super().update(loss, step)
        if 5 * step > 4 * self.recipe.steps:
            with torch.no_grad():
                norm.copy_(before)


class QuickSquares(Distillation):
    """Squares of gradients are forgotten as fast as in the pretraining of language models: beta2 is 0.95."""

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.student.parameters(), betas=(0.9, 0.95))


class NoDecay(Distillation):
    """Weight decay is 0."""

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.student.parameters(), weight_decay=0.0)


class PenaltyInsteadOfDecay(Distillation):
    """Weight decay is Adam's, a penalty in the gradient."""

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.student.parameters(), weight_decay=0.01)


class MaximumOfSquares(Distillation):
    """AMSGrad is on."""

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.student.parameters(), amsgrad=True)


class SmoothedLoss(Distillation):
    """The reported loss is a running mean."""

    mean: float | None = None

    def reported(self, loss: Tensor, step: int) -> float:
        """A tenth of the new one."""
        now = super().reported(loss, step)
        self.mean = now if self.mean is None else 0.9 * self.mean + 0.1 * now
        return self.mean


class _TellsOtherwise(Distillation):
    """Tells other values of a step than it has."""

    def told(self, step: int, values: dict[str, float]) -> tuple[int, dict[str, float]]:
        """The defect: the number and the values to tell."""
        raise NotImplementedError

    def distill(self, on_step: OnStep) -> Run:
        """Train, and tell."""

        def tell(step: int, **values: float) -> None:
            number, others = self.told(step, values)
            on_step(number, **others)

        return super().distill(tell)


class PeakRateTold(_TellsOtherwise):
    """The reported learning rate leaves the warm-up out."""

    def told(self, step: int, values: dict[str, float]) -> tuple[int, dict[str, float]]:
        """The configured one."""
        return step, {**values, "learning_rate": self.recipe.learning_rate}


class NumbersFromZero(_TellsOtherwise):
    """The reported step numbers begin with 0."""

    def told(self, step: int, values: dict[str, float]) -> tuple[int, dict[str, float]]:
        """One less."""
        return step - 1, values


class SpeedOfARow(_TellsOtherwise):
    """The batch is left out of the reported tokens a second."""

    def told(self, step: int, values: dict[str, float]) -> tuple[int, dict[str, float]]:
        """Those of one row."""
        return step, {**values, "tokens_per_second": values["tokens_per_second"] / self.recipe.batch}


class StopsEarly(Distillation):
    """A step is missing at the end."""

    def steps_to_make(self) -> int:
        """One less."""
        return super().steps_to_make() - 1


class AnotherActivation(Distillation):
    """The last layer of the student has GELU in place of SiLU."""

    def __init__(self, setting: Setting) -> None:
        """Exchange it."""
        super().__init__(setting)
        self.student.model.layers[-1].mlp.act_fn = torch.nn.GELU()


class _AnotherStart(Distillation):
    """The student's matrices do not start as they are drawn."""

    def __init__(self, setting: Setting) -> None:
        """Change them."""
        super().__init__(setting)
        with torch.no_grad():
            for weight in self.student_weights().values():
                if weight.dim() > 1:
                    weight.copy_(self.started(weight))

    def started(self, weight: Tensor) -> Tensor:
        """The defect."""
        raise NotImplementedError


class WideStart(_AnotherStart):
    """The standard deviation is a quarter too large."""

    def started(self, weight: Tensor) -> Tensor:
        """More."""
        return 1.25 * weight


class LowRankStart(_AnotherStart):
    """The second half of the rows repeats the first."""

    def started(self, weight: Tensor) -> Tensor:
        """Half of it, twice."""
        half = weight[: len(weight) // 2]
        return torch.cat([half, half, weight[2 * len(half) :]])


class BatchOfOneSeed(Distillation):
    """All seeds have the same batches."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Those of seed 0."""
        seed, self.seed = self.seed, 0
        try:
            return super().batch(step)
        finally:
            self.seed = seed


class BatchTransposed(Distillation):
    """There are as many rows as a row should have tokens, and as many tokens as there should be rows."""

    def __init__(self, setting: Setting) -> None:
        """Exchange the two."""
        super().__init__(setting)
        self.recipe = dataclasses.replace(self.recipe, batch=self.recipe.sequence, sequence=self.recipe.batch)


class OneMask(Distillation):
    """The generator is seeded before each step, so that dropout has one mask for all steps."""

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """Seed, then compute."""
        torch.manual_seed(self.seed)
        return super().loss(inputs, labels, step)


class DropsHalfAsMuch(Distillation):
    """Half of the share is dropped that is asked for."""

    @cached_property
    def student(self) -> Qwen2ForCausalLM:
        """Keep more."""
        return new_model(self.recipe, 2 * self.seed + 1, self.device, dropout=self.recipe.dropout / 2).train()


class NeverInTraining(Distillation):
    """The student stays in evaluation mode, so that nothing is dropped."""

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """Evaluate."""
        self.student.eval()
        return super().loss(inputs, labels, step)
