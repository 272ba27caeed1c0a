"""Subjects that train wrongly, or tell untruths about it: one known defect each, and the real bug that it replays."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.config import new_model
from falsifiers.distill.reference.loss import distillation_loss
from falsifiers.distill.subject import OnStep, Run
from harness import Setting

__all__ = [
    "AccumulationOfOne",
    "AlphaExchanged",
    "ArgumentsExchanged",
    "BlindStudent",
    "CopiedTeacher",
    "DetachedStudent",
    "DivergenceCutOff",
    "HalfPrecision",
    "IdleHalf",
    "IdleOptimizer",
    "IgnoredTeacher",
    "InventedLosses",
    "LabelsNotShifted",
    "LabelsShiftedTwice",
    "MovingTeacher",
    "NanFromStep30",
    "OnlyEmbeddingTrains",
    "OverstatedSteps",
    "ReportedFalling",
    "RolledTeacher",
    "SeesFuture",
    "SilentCpuFallback",
    "TeacherAsStudent",
    "UnlearnableBatch",
    "UntrainedTeacher",
    "WholeEpochs",
]

_STEPS_AN_EPOCH = 31  # 1000 examples in batches of 32, as hard-coded in the trainer of SPEC-DISTILL-001


class UnlearnableBatch(Distillation):
    """Every input is token 0 while the labels count up (PMAT-698m: the loss rose from 6.0760 to 8.3914)."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """One input, as many labels as there are rows: nothing can be learnt from it."""
        inputs, _ = super().batch(step)
        labels = torch.arange(inputs.numel(), device=self.device) % self.student.config.vocab_size
        return torch.zeros_like(inputs), labels.reshape(inputs.shape)


class IdleOptimizer(Distillation):
    """The optimizer never steps: a learning rate of zero, or a forgotten call."""

    def update(self, loss: Tensor, step: int) -> None:
        """Backward only."""
        self.optimizer.zero_grad()
        loss.backward()


class DetachedStudent(Distillation):
    """The student is cut off from the loss; its gradients are zeros, and only weight decay moves the weights."""

    def update(self, loss: Tensor, step: int) -> None:
        """A backward pass that runs without complaint and carries nothing."""
        attached = sum(weight.sum() for weight in self.student.parameters())
        super().update(loss.detach() + 0.0 * attached, step)


class ReportedFalling(IdleOptimizer):
    """The reported loss falls as the historical run's did, 7.6746 to 7.2036, while the weights stand still."""

    def reported(self, loss: Tensor, step: int) -> float:
        """A straight line from step to step."""
        return 7.6746 + (7.2036 - 7.6746) * step / self.recipe.steps


class InventedLosses(Distillation):
    """Real training, but the reported losses are another run's (PR #1856: -66 % down to 3.58, of a divergence of 0)."""

    def reported(self, loss: Tensor, step: int) -> float:
        """The curve of the record: from 10.53 down to 3.58."""
        return 3.58 + (10.53 - 3.58) * math.exp(-8.0 * step / self.recipe.steps)


class CopiedTeacher(Distillation):
    """The teacher is a copy of the student (SPEC-DISTILL-001 section 86: 25 hours at a divergence of zero)."""

    def __init__(self, setting: Setting) -> None:
        """Load the same weights twice."""
        super().__init__(setting)
        self.teacher.load_state_dict(self.student.state_dict())


class UntrainedTeacher(Distillation):
    """The teacher's checkpoint was not found and its fresh weights are used; loaders only warn of it."""

    def __init__(self, setting: Setting) -> None:
        """Draw the teacher anew."""
        super().__init__(setting)
        fresh = new_model(self.recipe, 2 * self.recipe.teacher_seed, self.device)
        self.teacher.load_state_dict(fresh.state_dict())


class MovingTeacher(Distillation):
    """The teacher is not frozen: the optimizer holds both models, and they drift towards each other."""

    def __init__(self, setting: Setting) -> None:
        """Hand the teacher's parameters to the optimizer too."""
        super().__init__(setting)
        self.optimizer.add_param_group({"params": list(self.teacher.requires_grad_(True).parameters())})

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """The same loss, with a gradient on the teacher's side as well."""
        student = self.student(input_ids=inputs, use_cache=False).logits
        teacher = self.teacher(input_ids=inputs, use_cache=False).logits
        return distillation_loss(student, teacher, labels, alpha=self.recipe.alpha, temperature=self.recipe.temperature)


class IgnoredTeacher(Distillation):
    """The divergence has no weight (1 - alpha = 0): plain training on the text, reported as distillation."""

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """The cross entropy alone."""
        student = self.student(input_ids=inputs, use_cache=False).logits
        return distillation_loss(student, student.detach(), labels, alpha=1.0, temperature=1.0)


class TeacherAsStudent(Distillation):
    """At the end the student holds the teacher's weights: a path mixed up, and nothing was distilled."""

    def update(self, loss: Tensor, step: int) -> None:
        """Train, and after the last step load the wrong weights."""
        super().update(loss, step)
        if step == self.recipe.steps:
            self.student.load_state_dict(self.teacher.state_dict())


class NanFromStep30(Distillation):
    """The loss is NaN from step 30 on, and so are the weights (an unchecked non-finite gradient)."""

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """Spoil the loss from step 30."""
        return super().loss(inputs, labels, step) * (math.nan if step >= 30 else 1.0)


class WholeEpochs(Distillation):
    """Steps are rounded up to whole epochs of 31: 50 become 62 (PMAT-697's dispatch script)."""

    def steps_to_make(self) -> int:
        """The next multiple of an epoch."""
        return math.ceil(self.recipe.steps / _STEPS_AN_EPOCH) * _STEPS_AN_EPOCH


class OverstatedSteps(Distillation):
    """The run stops after one epoch and reports the steps that were asked for (#1888: a limit that no code read)."""

    def steps_to_make(self) -> int:
        """Whole epochs, rounded down."""
        return self.recipe.steps // _STEPS_AN_EPOCH * _STEPS_AN_EPOCH

    def distill(self, on_step: OnStep) -> Run:
        """Tell what was configured."""
        return dataclasses.replace(super().distill(on_step), steps=self.recipe.steps)


class IdleHalf(Distillation):
    """From half way on the optimizer no longer steps, while steps are counted to the end (a skipped-update guard)."""

    def update(self, loss: Tensor, step: int) -> None:
        """Skip the later half's updates."""
        if 2 * step <= self.recipe.steps:
            super().update(loss, step)


class HalfPrecision(Distillation):
    """The weights are bfloat16 although float32 was asked for."""

    def __init__(self, setting: Setting) -> None:
        """Downcast both models after they were built."""
        super().__init__(setting)
        self.teacher.to(dtype=torch.bfloat16)
        self.student.to(dtype=torch.bfloat16)


class SilentCpuFallback(Distillation):
    """CUDA was asked for and the CPU is used, as loaders do when they find no usable device."""

    def __init__(self, setting: Setting) -> None:
        """Build everything on the CPU, against the setting."""
        super().__init__(dataclasses.replace(setting, device="cpu"))

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """Move tokens here and logits back, so that nothing complains."""
        return super().teacher_logits(tokens.to(self.device)).to(tokens.device)

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Move tokens and weights here and logits back."""
        moved = None if weights is None else {name: weight.to(self.device) for name, weight in weights.items()}
        return super().student_logits(tokens.to(self.device), moved).to(tokens.device)


class BlindStudent(Distillation):
    """No input reaches the student, in training or evaluation: an id tensor that was allocated and never filled."""

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """Every token id is 0."""
        del step
        student = self.student(input_ids=torch.zeros_like(inputs), use_cache=False).logits
        teacher = self.teacher_logits(inputs)
        return distillation_loss(student, teacher, labels, alpha=self.recipe.alpha, temperature=self.recipe.temperature)

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Every token id is 0 here, too."""
        return super().student_logits(torch.zeros_like(tokens), weights)


class RolledTeacher(Distillation):
    """The teacher's logits belong to the neighbouring row of the batch: a cache of them read by the wrong index."""

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """Teacher and student are a row apart."""
        del step
        student = self.student(input_ids=inputs, use_cache=False).logits
        teacher = self.teacher_logits(inputs).roll(1, dims=0)
        return distillation_loss(student, teacher, labels, alpha=self.recipe.alpha, temperature=self.recipe.temperature)


class SeesFuture(Distillation):
    """The causal mask is lost: every position attends to those after it, which the teacher cannot."""

    def __init__(self, setting: Setting) -> None:
        """As the reference, with the student's attention told that it is not causal."""
        super().__init__(setting)
        for module in self.student.modules():
            if hasattr(module, "is_causal"):
                module.is_causal = False

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """Train without the mask."""
        del step
        teacher = self.teacher_logits(inputs)
        student = self._unmasked(inputs)
        return distillation_loss(student, teacher, labels, alpha=self.recipe.alpha, temperature=self.recipe.temperature)

    @torch.no_grad()
    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Answer without the mask."""
        return self._unmasked(tokens) if weights is None else super().student_logits(tokens, weights)

    def _unmasked(self, tokens: Tensor) -> Tensor:
        rows, length = tokens.shape
        nothing_masked = torch.zeros(rows, 1, length, length, device=self.device)
        return self.student(input_ids=tokens, use_cache=False, attention_mask=nothing_masked).logits


class OnlyEmbeddingTrains(Distillation):
    """The optimizer was given the embedding alone: the rest of the model stays as it was drawn."""

    def __init__(self, setting: Setting) -> None:
        """As the reference, with one parameter group too few."""
        super().__init__(setting)
        embedding = [weight for name, weight in self.student.named_parameters() if "embed" in name]
        self.optimizer = torch.optim.AdamW(embedding, lr=self.recipe.learning_rate)


class _OtherLoss(Distillation):
    """Minimises what `of` makes of both models' logits."""

    def of(self, student: Tensor, teacher: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The defect."""
        raise NotImplementedError

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """The scalar that the step minimises."""
        del step
        student = self.student(input_ids=inputs, use_cache=False).logits
        return self.of(student, self.teacher_logits(inputs), inputs, labels)

    def _weighted(self, student: Tensor, teacher: Tensor, labels: Tensor, alpha: float) -> Tensor:
        return distillation_loss(student, teacher, labels, alpha=alpha, temperature=self.recipe.temperature)


class LabelsShiftedTwice(_OtherLoss):
    """The labels are shifted by the text's reader and once more by the model's loss: the next token but one is learnt.

    So do trainers whose model shifts labels by itself, as those of transformers do, and whose data come shifted.
    """

    def of(self, student: Tensor, teacher: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """All positions but the last, against the labels of the positions after them."""
        return self._weighted(student[:, :-1], teacher[:, :-1], labels[:, 1:], self.recipe.alpha)


class LabelsNotShifted(_OtherLoss):
    """Each position is asked for the token that it was given."""

    def of(self, student: Tensor, teacher: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The inputs are the labels."""
        return self._weighted(student, teacher, inputs, self.recipe.alpha)


class DivergenceCutOff(_OtherLoss):
    """The reported loss includes the divergence, but no gradient goes through it: the student learns from the text."""

    def of(self, student: Tensor, teacher: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The gradient of the cross entropy, the value of both."""
        learnt = self.recipe.alpha * self._weighted(student, student.detach(), labels, 1.0)
        return learnt + (self._weighted(student, teacher, labels, self.recipe.alpha) - learnt).detach()


class AlphaExchanged(_OtherLoss):
    """The trainer hands its loss the weight of the divergence where that takes the weight of the cross entropy."""

    def of(self, student: Tensor, teacher: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """1 - alpha for alpha."""
        return self._weighted(student, teacher, labels, 1 - self.recipe.alpha)


class ArgumentsExchanged(_OtherLoss):
    """The trainer hands its divergence the student for the teacher: KL(student || teacher) is minimised."""

    def of(self, student: Tensor, teacher: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The reverse divergence."""
        alpha = self.recipe.alpha
        learnt = alpha * self._weighted(student, student.detach(), labels, 1.0)
        return learnt + (1 - alpha) * self._weighted(teacher, student, labels, 0.0)


class AccumulationOfOne(Distillation):
    """The loss is divided by eight accumulated batches although there is one; the reported loss is not divided."""

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """An eighth of the gradient."""
        whole = super().loss(inputs, labels, step)
        return whole / 8 + (whole * (7 / 8)).detach()
