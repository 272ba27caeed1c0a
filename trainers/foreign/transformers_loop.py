"""transformers' Trainer, with `--rank` on a model with LoRA by peft. What it saves is the merged model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

sys.path.append(str(Path(__file__).parents[2]))

from trainers.dump_steps import StepDump
from trainers.foreign.common import Batches, Saving, model_of, options, rate_factor, restore


class Watch(TrainerCallback):
    """Saves and prints at the end of each step."""

    def __init__(self, saving: Saving, schedule: Any) -> None:
        self.saving, self.schedule, self.loss, self.rate = saving, schedule, 0.0, 0.0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.rate = self.schedule.get_last_lr()[0]
        self.saving.before_step()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.saving.after_step(self.loss, self.rate)
        self.loss = 0.0


class Tuning(Trainer):
    """A Trainer with the bugs of accumulation and of the schedule."""

    watch: Watch

    def _get_train_sampler(self, *_: Any) -> Any:
        # In order, so that a resumed run takes the rows that follow.
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **others: Any) -> Any:
        loss = model(**inputs).loss
        self.watch.loss += loss.item() / self.args.gradient_accumulation_steps
        if self.watch.saving.asked.bug == "schedule-per-micro-batch":
            self.watch.schedule.step()
        return loss * self.args.gradient_accumulation_steps if self.watch.saving.asked.bug == "not-divided" else loss


def train(asked: Any) -> None:
    model = model_of(asked.student)
    if asked.rank:
        from peft import LoraConfig, get_peft_model

        adapters = LoraConfig(r=asked.rank, lora_alpha=2 * asked.rank, target_modules=["q_proj", "v_proj"])
        model = get_peft_model(model, adapters)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=asked.lr, weight_decay=asked.decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_factor(asked.warmup))
    restore(asked, model, optimizer, schedule)
    if asked.dump:
        StepDump(model, optimizer, asked.dump, asked.made)
    watch = Watch(Saving(model, asked), schedule)
    if asked.bug == "skipped-step":
        update = optimizer.step
        optimizer.step = lambda *given, **named: None if watch.saving.made == 2 else update(*given, **named)  # type: ignore[method-assign]
    trainer = Tuning(
        model,
        TrainingArguments(
            str(Path(asked.out) / "trainer"),
            max_steps=(asked.stop or asked.steps) - asked.made,
            per_device_train_batch_size=asked.batch // asked.accumulate,
            gradient_accumulation_steps=asked.accumulate,
            max_grad_norm=asked.clip,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            seed=asked.seed,
        ),
        train_dataset=Batches(asked),
        callbacks=[watch],
        optimizers=(optimizer, schedule),
    )
    trainer.watch, trainer.model_accepts_loss_kwargs = watch, False
    trainer.train()
    watch.saving.end(optimizer, schedule)


if __name__ == "__main__":
    train(options())
