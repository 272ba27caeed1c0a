"""A loop of plain PyTorch: accumulation, clipping, a warm-up, checkpoints, and a resume."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1]))

from dump_steps import StepDump

from foreign.common import Batches, Saving, model_of, options, rate_factor, restore


def train(asked: Any) -> None:
    bug = asked.bug
    model = model_of(asked.student)
    decay = 0.0 if bug == "decay-after-update" else asked.decay
    weights = list(model.parameters())
    groups = [weights[:-1], weights[-1:]] if bug == "group-without-schedule" else [weights]
    optimizer = torch.optim.AdamW([{"params": group} for group in groups], lr=asked.lr, weight_decay=decay)
    factors = [rate_factor(asked.warmup), rate_factor(0)][: len(groups)]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factors)
    restore(asked, model, optimizer, schedule)
    if bug == "decay-after-update":
        optimizer.register_step_post_hook(decay_after(model, asked.decay))
    if asked.dump:
        StepDump(model, optimizer, asked.dump, asked.made)
    data, saving = Batches(asked), Saving(model, asked)
    for step in range(asked.made + 1, (asked.stop or asked.steps) + 1):
        total, parts = 0.0, data.step(step, asked)[: -1 if bug == "last-rows-dropped" else None]
        for part in parts:
            loss = model(**part).loss
            (loss if bug == "not-divided" else loss / len(parts)).backward()
            total += loss.item() / len(parts)
            if bug == "schedule-per-micro-batch":
                schedule.step()
        if asked.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), asked.clip)
        rate = schedule.get_last_lr()[0]
        saving.before_step()
        if bug != "skipped-step" or step != 3:
            optimizer.step()
        if bug != "schedule-per-micro-batch":
            schedule.step()
        if bug != "gradients-kept":
            optimizer.zero_grad()
        saving.after_step(total, rate)
    saving.end(optimizer, schedule)


def decay_after(model: Any, share: float) -> Any:
    """A hook that lets the weights decay after the update."""

    def decay(optimizer: Any, *_: Any) -> None:
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1 - optimizer.param_groups[0]["lr"] * share)

    return decay


if __name__ == "__main__":
    train(options())
