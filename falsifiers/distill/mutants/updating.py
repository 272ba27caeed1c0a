"""Subjects that step with another rate, on part of the batch, or not in every tensor: one known defect each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.loss import distillation_loss
from harness import Setting

__all__ = [
    "ClearedEverySecondStep",
    "ClearedOnce",
    "DefaultRate",
    "DividedTwice",
    "EmbeddingStops",
    "EndlessWarmup",
    "FirstHalfTrains",
    "FirstRowRepeated",
    "FrozenEmbedding",
    "GradientsKept",
    "HardCodedRate",
    "LastRowTrains",
    "NeverCleared",
    "NoWarmup",
    "NotClipped",
    "OnlyRowsSeen",
    "OnlyRowsSeenDecay",
    "OptimizerMadeAnew",
    "RateDecays",
    "RateHalved",
    "RateOfOneGroup",
    "RateSags",
    "RemainderDropped",
    "RowsAttendToEachOther",
    "RowsSummed",
    "ScheduleOfOneGroup",
    "SchedulerStepsFirst",
    "WarmupOfMicroBatches",
]


class DefaultRate(Distillation):
    """The configured rate never reaches the optimizer, which keeps its default of 1e-3 (distill-batch-honesty-v1)."""

    def learning_rate(self, step: int) -> float:
        """The default of AdamW, warmed up."""
        return super().learning_rate(step) / self.recipe.learning_rate * 1e-3


class HardCodedRate(Distillation):
    """1e-4 stands in the script where 1.5e-5 was configured (PMAT-697)."""

    def learning_rate(self, step: int) -> float:
        """The script's."""
        return super().learning_rate(step) / self.recipe.learning_rate * 1e-4


class EndlessWarmup(Distillation):
    """Warm-up takes a thousand steps, against the configuration: a short run never reaches its rate."""

    def learning_rate(self, step: int) -> float:
        """A thousandth more each step."""
        return self.recipe.learning_rate * min(1.0, step / 1000)


class NoWarmup(Distillation):
    """Warm-up is configured and not made."""

    def learning_rate(self, step: int) -> float:
        """The whole rate at once."""
        return self.recipe.learning_rate


class RateDecays(Distillation):
    """A schedule that is not configured takes the rate to zero over the run."""

    def learning_rate(self, step: int) -> float:
        """Linearly from the second step on."""
        return super().learning_rate(step) * (1 - (step - 1) / self.recipe.steps)


class RateHalved(Distillation):
    """The rate is divided by two accumulated batches, although their losses were averaged already."""

    def learning_rate(self, step: int) -> float:
        """Half of it."""
        return super().learning_rate(step) / 2


class SchedulerStepsFirst(Distillation):
    """The schedule steps before the optimizer: every step has the next one's rate."""

    def learning_rate(self, step: int) -> float:
        """One step ahead."""
        return super().learning_rate(step + 1)


class RateOfOneGroup(Distillation):
    """The norms are a parameter group of their own, and the configured rate is set for the first group only."""

    def __init__(self, setting: Setting) -> None:
        """Two groups."""
        super().__init__(setting)
        norms = [weight for name, weight in self.student_weights().items() if "norm" in name]
        others = [weight for name, weight in self.student_weights().items() if "norm" not in name]
        self.optimizer = torch.optim.AdamW([{"params": others}, {"params": norms}])

    def update(self, loss: Tensor, step: int) -> None:
        """Set the rate of the first group, and step."""
        self.optimizer.param_groups[0]["lr"] = self.learning_rate(step)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class FrozenEmbedding(Distillation):
    """The embedding asks for no gradient, as after loading it for inference."""

    def __init__(self, setting: Setting) -> None:
        """Freeze it."""
        super().__init__(setting)
        self.student.model.embed_tokens.weight.requires_grad_(False)


class NeverCleared(Distillation):
    """The gradients are never cleared: each step takes the sum of all before it."""

    def __init__(self, setting: Setting) -> None:
        """Take the clearing away."""
        super().__init__(setting)
        self.optimizer.zero_grad = lambda set_to_none=True: None


class ClearedOnce(Distillation):
    """The gradients are cleared before the first step, as if that were once and for all."""

    def update(self, loss: Tensor, step: int) -> None:
        """Clear, once."""
        super().update(loss, step)
        self.optimizer.zero_grad = lambda set_to_none=True: None


class OnlyRowsSeen(Distillation):
    """The embedding's gradient reaches the rows that the batch names: the head's share of it is lost."""

    def __init__(self, setting: Setting) -> None:
        """Drop the gradient of every row whose token does not occur in the batch."""
        super().__init__(setting)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=self.recipe.learning_rate, weight_decay=0.0)
        self._seen: Tensor | None = None
        self.student.model.embed_tokens.weight.register_hook(self._of_seen)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Remember which tokens occur."""
        inputs, labels = super().batch(step)
        self._seen = inputs.unique()
        return inputs, labels

    def _of_seen(self, gradient: Tensor) -> Tensor:
        kept = torch.zeros_like(gradient)
        kept[self._seen] = gradient[self._seen]
        return kept


class EmbeddingStops(Distillation):
    """Half way through, the embedding is frozen (an unfreezing schedule with its sign turned)."""

    def update(self, loss: Tensor, step: int) -> None:
        """Put the embedding back after each later step."""
        embedding = self.student.model.embed_tokens.weight
        before = embedding.detach().clone()
        super().update(loss, step)
        if 2 * step > self.recipe.steps:
            with torch.no_grad():
                embedding.copy_(before)


class _PartOfBatch(Distillation):
    """Trains on the rows that `kept` keeps."""

    def kept(self, rows: Tensor) -> Tensor:
        """The defect: which rows of [rows, sequence] have a part in the loss."""
        raise NotImplementedError

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """The loss of a part of the batch."""
        return super().loss(self.kept(inputs), self.kept(labels), step)


class LastRowTrains(_PartOfBatch):
    """Only the last row of the batch has a gradient, while the reported loss is the mean of all rows (S-R6)."""

    def kept(self, rows: Tensor) -> Tensor:
        """The last."""
        return rows[-1:]

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """The value of the mean, the gradient of the last row."""
        last = super().loss(inputs, labels, step)
        with torch.no_grad():
            mean = Distillation.loss(self, inputs, labels, step)
        return last + (mean - last).detach()


class FirstHalfTrains(_PartOfBatch):
    """The second half of the batch is dropped."""

    def kept(self, rows: Tensor) -> Tensor:
        """The first half, and at least one row."""
        return rows[: max(1, len(rows) // 2)]


class RemainderDropped(_PartOfBatch):
    """Rows are taken three at a time, and those left over are dropped."""

    def kept(self, rows: Tensor) -> Tensor:
        """A multiple of three, where there are three."""
        return rows[: max(len(rows) // 3 * 3, min(len(rows), 2))]


class FirstRowRepeated(_PartOfBatch):
    """The batch is the first row many times: expanded where it should have been gathered."""

    def kept(self, rows: Tensor) -> Tensor:
        """The first row in every place."""
        return rows[:1].expand_as(rows)


class _ScaledLoss(Distillation):
    """The loss times a factor that depends on the batch."""

    factor: Callable[[int], float]

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """Scale it."""
        return super().loss(inputs, labels, step) * type(self).factor(len(inputs))


class RowsSummed(_ScaledLoss):
    """The loss is the sum over the rows, so that the batch scales the gradient."""

    factor = staticmethod(float)


class DividedTwice(_ScaledLoss):
    """Micro-batches of four rows are averaged, and then divided by their number once more."""

    factor = staticmethod(lambda rows: 1.0 / max(1, rows // 4))


class RowsAttendToEachOther(Distillation):
    """The batch is packed into one long sequence, and nothing keeps a row from reading those before it."""

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """One sequence of all rows, each with its own positions; only causality masks."""
        positions = torch.arange(inputs.shape[1], device=inputs.device).repeat(len(inputs)).unsqueeze(0)
        length = inputs.numel()
        causal = torch.full((length, length), float("-inf"), device=inputs.device).triu(1)[None, None]
        call = {"input_ids": inputs.reshape(1, -1), "position_ids": positions, "attention_mask": causal}
        student = self.student(**call, use_cache=False).logits
        teacher = self.teacher_logits(inputs).reshape(1, length, -1)
        recipe = self.recipe
        return distillation_loss(
            student, teacher, labels.reshape(1, -1), alpha=recipe.alpha, temperature=recipe.temperature
        )


class GradientsKept(NeverCleared):
    """The gradient of the batch before is still there when the next one is taken."""


class ClearedEverySecondStep(Distillation):
    """The gradients are cleared at every second step: an accumulation over two batches that steps after each."""

    def update(self, loss: Tensor, step: int) -> None:
        """Carry the gradient of an even step into the odd one after it."""
        clear = self.optimizer.zero_grad
        if step % 2:
            self.optimizer.zero_grad = lambda set_to_none=True: None
        super().update(loss, step)
        self.optimizer.zero_grad = clear


class OnlyRowsSeenDecay(OnlyRowsSeen):
    """The same with AdamW's usual weight decay, which moves the other rows too, so that they seem to learn."""

    def __init__(self, setting: Setting) -> None:
        """Another optimizer."""
        super().__init__(setting)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=self.recipe.learning_rate)


class ScheduleOfOneGroup(RateOfOneGroup):
    """Both groups begin at the first step's rate, and only the first group follows the schedule: norms stay there."""

    def __init__(self, setting: Setting) -> None:
        """The right rate, for one step."""
        super().__init__(setting)
        self.optimizer.param_groups[1]["lr"] = self.learning_rate(1)


class WarmupOfMicroBatches(Distillation):
    """The schedule steps once for each of the two micro-batches of a step: warm-up takes half of its steps."""

    def learning_rate(self, step: int) -> float:
        """The rate of the step's first micro-batch."""
        return super().learning_rate(2 * step - 1)


class RateSags(Distillation):
    """After the warm-up, a schedule that is not configured slowly lowers the rate."""

    def learning_rate(self, step: int) -> float:
        """By a twelfth of itself a step."""
        return super().learning_rate(step) * (1 - max(0, step - self.recipe.warmup_steps) / 12)


class OptimizerMadeAnew(Distillation):
    """The optimizer is made inside the loop: every step is its first, and nothing is averaged over steps."""

    def update(self, loss: Tensor, step: int) -> None:
        """Forget all moments, then step."""
        self.optimizer.state.clear()
        super().update(loss, step)


class NotClipped(Distillation):
    """The gradient norm limit is configured and ignored."""

    def __init__(self, setting: Setting) -> None:
        """Forget it."""
        super().__init__(setting)
        self.recipe = dataclasses.replace(self.recipe, gradient_norm=None)
