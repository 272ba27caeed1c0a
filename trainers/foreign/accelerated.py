"""A loop of accelerate, which accumulates gradients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

sys.path.append(str(Path(__file__).parents[2]))

from trainers.dump_steps import StepDump
from trainers.foreign.common import Batches, Saving, model_of, options, rate_factor, restore


def train(asked: Any) -> None:
    bug = asked.bug
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=asked.accumulate)
    model = model_of(asked.student)
    optimizer = torch.optim.AdamW(model.parameters(), lr=asked.lr, weight_decay=asked.decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_factor(asked.warmup))
    restore(asked, model, optimizer, schedule)
    if asked.dump:
        StepDump(model, optimizer, asked.dump, asked.made)
    rows = torch.utils.data.DataLoader(Batches(asked), batch_size=asked.batch // asked.accumulate)
    model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
    saving, total = Saving(model, asked), 0.0
    for part in rows:
        with accelerator.accumulate(model):
            loss = model(**part).loss
            accelerator.backward(loss * asked.accumulate if bug == "not-divided" else loss)
            total += loss.item() / asked.accumulate
            if bug == "schedule-per-micro-batch":
                schedule.step()
            if not accelerator.sync_gradients:
                continue
            if asked.clip:
                accelerator.clip_grad_norm_(model.parameters(), asked.clip)
            rate = schedule.get_last_lr()[0]
            saving.before_step()
            if bug != "skipped-step" or saving.made != 2:
                optimizer.step()
            if bug != "schedule-per-micro-batch":
                schedule.step()
            optimizer.zero_grad()
        saving.after_step(total, rate)
        total = 0.0
    saving.end(optimizer, schedule)


if __name__ == "__main__":
    train(options())
