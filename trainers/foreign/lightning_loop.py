"""A LightningModule with automatic optimization."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning
import torch

sys.path.append(str(Path(__file__).parents[2]))

from trainers.dump_steps import StepDump
from trainers.foreign.common import Batches, Saving, model_of, options, rate_factor, restore


class Module(lightning.LightningModule):
    def __init__(self, asked: Any) -> None:
        super().__init__()
        self.asked, self.model, self.total = asked, model_of(asked.student), 0.0
        self.saving = Saving(self.model, asked)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.asked.lr, weight_decay=self.asked.decay)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_factor(self.asked.warmup))
        restore(self.asked, self.model, optimizer, schedule)
        if self.asked.dump:
            StepDump(self.model, optimizer, self.asked.dump, self.asked.made)
        self.optimizer, self.schedule = optimizer, schedule
        if self.asked.bug == "schedule-per-micro-batch":
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def training_step(self, batch: Any, number: int) -> Any:
        loss = self.model(**batch).loss
        self.total += loss.item() / self.asked.accumulate
        if self.asked.bug == "schedule-per-micro-batch":
            self.schedule.step()
        return loss * self.asked.accumulate if self.asked.bug == "not-divided" else loss

    def optimizer_step(self, epoch: int, number: int, optimizer: Any, closure: Any = None) -> None:
        rate = optimizer.param_groups[0]["lr"]
        self.saving.before_step()
        if self.asked.bug == "skipped-step" and self.saving.made == 2:
            closure()
        else:
            optimizer.step(closure=closure)
        self.saving.after_step(self.total, rate)
        self.total = 0.0


def train(asked: Any) -> None:
    module = Module(asked)
    rows = torch.utils.data.DataLoader(Batches(asked), batch_size=asked.batch // asked.accumulate)
    trainer = lightning.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=1,
        max_epochs=1,
        accumulate_grad_batches=asked.accumulate,
        gradient_clip_val=asked.clip or None,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, rows)
    module.saving.end(module.optimizer, module.schedule)


if __name__ == "__main__":
    train(options())
