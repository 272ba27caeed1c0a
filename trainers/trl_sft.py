"""TRL's SFTTrainer as a subject in the harness's process: supervised fine-tuning, without a teacher.

    harness run F-DISTILL-STEP-001 --subject hf:trainers.trl_sft:build -P alpha=1

Its loss is the cross entropy, which is the claims' loss with an `alpha` of 1. What needs a teacher is NOT_MEASURED.
"""

from __future__ import annotations

from typing import Any

from trl import SFTConfig, SFTTrainer

from harness import NotMeasured, Setting
from trainers.claim_recipe import ClaimRecipe, LogsSpeed, SavesWhole
from trainers.trl_data import bytes_tokenizer, collate, dataset

__all__ = ["SFT", "build", "new_trainer"]


class SFT(LogsSpeed, SavesWhole, SFTTrainer):
    """Logs its speed too, and saves whole checkpoints."""


def build(setting: Setting) -> SFT:
    """Build the Trainer that a claim's parameters describe."""
    return new_trainer(setting)


def new_trainer(setting: Setting, kind: type[SFT] = SFT, **changed: Any) -> SFT:
    """The same as another class, and with some of its arguments changed."""
    if setting.parameters["alpha"] != 1:
        raise NotMeasured("fine-tuning has the cross entropy alone: add -P alpha=1")
    recipe = ClaimRecipe.of(
        setting,
        bf16=False,
        gradient_checkpointing=False,
        max_length=None,
        loss_type="nll",
        dataset_kwargs={"skip_prepare_dataset": True},
        **changed,
    )
    return kind(
        model=recipe.student,
        args=SFTConfig(**recipe.arguments),
        data_collator=collate,
        train_dataset=dataset(recipe.rows),
        processing_class=bytes_tokenizer(),
        optimizers=recipe.optimizers,
    )
