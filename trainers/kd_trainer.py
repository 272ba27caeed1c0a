"""A distillation by `transformers.Trainer`, as a subject in the harness's process.

    harness run F-DISTILL-SMOKE-001 --subject hf:trainers.kd_trainer:build

`build` has the claim's parameters as arguments. Copy this file for a Trainer of your own: replace the models and the
data, and keep the parameters that a claim sets.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer, TrainingArguments

from harness import Setting
from trainers.claim_recipe import ClaimRecipe, LogsSpeed, SavesWhole, SaysWhatItDid


class KDTrainer(LogsSpeed, SavesWhole, SaysWhatItDid, Trainer):  # type: ignore[misc]
    """Learns from the next tokens and from a frozen teacher."""

    def __init__(self, *, teacher: PreTrainedModel, alpha: float, temperature: float, **options: Any) -> None:
        """Take the teacher as it is."""
        super().__init__(**options)
        self.teacher_model = teacher.to(self.args.device).requires_grad_(False).eval()
        self.alpha, self.temperature = alpha, temperature
        self.loss_settings = {"alpha": alpha, "temperature": temperature}
        self.model_accepts_loss_kwargs = False  # compute_loss takes a mean, so the Trainer divides by its micro-batches

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        """`alpha * CE + (1 - alpha) * T^2 * KL(teacher || student)`, both a mean over the tokens whose label counts.

        If no label counts, the loss is 0, and so is each gradient.
        """
        tokens, labels = inputs["input_ids"][:, :-1], inputs["labels"][:, 1:]
        outputs = model(input_ids=tokens, use_cache=False)
        with torch.no_grad():
            taught = self.teacher_model(input_ids=tokens, use_cache=False).logits
        counted = labels != -100
        student, teacher = (logits[counted].float() for logits in (outputs.logits, taught))
        divergence = F.kl_div(
            F.log_softmax(student / self.temperature, dim=-1),
            F.log_softmax(teacher / self.temperature, dim=-1),
            log_target=True,
            reduction="sum",
        )
        entropy = F.cross_entropy(student, labels[counted], reduction="sum")
        weighted = self.alpha * entropy + (1 - self.alpha) * self.temperature**2 * divergence
        loss = weighted / counted.sum().clamp_min(1)
        return (loss, outputs) if return_outputs else loss


def build(setting: Setting) -> KDTrainer:
    """Build the Trainer that a claim's parameters describe."""
    return new_trainer(setting)


def new_trainer(setting: Setting, kind: type[KDTrainer] = KDTrainer, **changed: Any) -> KDTrainer:
    """The same as another class, and with some of its `TrainingArguments` changed."""
    wanted, recipe = setting.parameters, ClaimRecipe.of(setting, **changed)
    return kind(
        teacher=recipe.teacher,
        alpha=wanted["alpha"],
        temperature=wanted["temperature"],
        model=recipe.student,
        args=TrainingArguments(**recipe.arguments),
        train_dataset=[{"input_ids": row, "labels": row} for row in recipe.rows],
        optimizers=recipe.optimizers,
    )
