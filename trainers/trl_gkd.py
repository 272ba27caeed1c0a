"""TRL's GKDTrainer as a subject in the harness's process: generalised knowledge distillation on given texts.

    harness run F-DISTILL-STEP-001 --subject hf:trainers.trl_gkd:build -P alpha=0 -P temperature=1

With `beta` 0 and `lmbda` 0 its loss is KL(teacher || student) over the labels' tokens. That is the claims' loss with an
`alpha` of 0 and a `temperature` of 1, so these must be asked for.
"""

from __future__ import annotations

from typing import Any

from trl.experimental.gkd import GKDConfig, GKDTrainer

from harness import NotMeasured, Setting
from trainers.claim_recipe import ClaimRecipe, LogsSpeed, SavesWhole, SaysWhatItDid
from trainers.trl_data import bytes_tokenizer, collate, dataset

__all__ = ["GKD", "build", "new_trainer"]


class GKD(LogsSpeed, SavesWhole, SaysWhatItDid, GKDTrainer):
    """Logs its speed too, saves whole checkpoints, and says in its files what it did."""

    loss_settings = {"alpha": 0.0, "temperature": 1.0}  # noqa: RUF012


def build(setting: Setting) -> GKD:
    """Build the Trainer that a claim's parameters describe."""
    return new_trainer(setting)


def new_trainer(setting: Setting, kind: type[GKD] = GKD, **changed: Any) -> GKD:
    """The same as another class, and with some of its arguments changed."""
    wanted = setting.parameters
    if (wanted["alpha"], wanted["temperature"]) != (0, 1):
        raise NotMeasured("GKD has no cross entropy and no factor T^2: add -P alpha=0 -P temperature=1")
    recipe = ClaimRecipe.of(
        setting,
        lmbda=0.0,  # learns from the texts, and generates none
        beta=0.0,
        bf16=False,
        gradient_checkpointing=False,
        max_length=None,
        **changed,
    )
    return kind(
        model=recipe.student,
        teacher_model=recipe.teacher.requires_grad_(False),
        args=GKDConfig(**recipe.arguments),
        data_collator=collate,
        train_dataset=dataset(recipe.rows),
        processing_class=bytes_tokenizer(),
        optimizers=recipe.optimizers,
    )
