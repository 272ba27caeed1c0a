"""Models, data and arguments as a claim's parameters describe them, for the Trainers of this folder.

A Trainer of your own has models and data of its own. It keeps the arguments that a claim sets.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from falsifiers.distill.reference import Distillation
from falsifiers.distill.text.corpus import load_corpus, sample
from harness import Setting

__all__ = ["ROWS", "ClaimRecipe", "LogsSpeed", "SavesWhole", "SaysWhatItDid"]

ROWS = 640
"""Rows of the training text. A longer run goes through them again."""


@dataclass(frozen=True)
class ClaimRecipe:
    """What a Trainer is built from.

    Attributes:
        rows: token ids [rows, sequence + 1]; each token but the first is a label.
        optimizers: AdamW and the schedule of the claims.
        arguments: of `TrainingArguments`.
    """

    student: nn.Module
    teacher: nn.Module
    rows: Tensor
    optimizers: tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]
    arguments: dict[str, Any]

    @classmethod
    def of(cls, setting: Setting, **changed: Any) -> ClaimRecipe:
        """Read the setting.

        Args:
            changed: arguments that are another Trainer's.

        Raises:
            ValueError: fewer steps than one were asked for.
        """
        wanted = setting.parameters
        if wanted["steps"] < 1:
            raise ValueError(f"{wanted['steps']} steps were asked for; a Trainer would take them for none given")
        models = Distillation(setting)  # the models that the claims compare with: any two of their shapes would do
        student, teacher = models.student, models.teacher
        teacher.name_or_path = f"{wanted['model']}-teacher-seed-{wanted['teacher_seed']}"
        every, warmup = wanted.get("checkpoint_every", 5000), wanted["warmup_steps"]
        arguments = {
            "output_dir": str(setting.workspace / "distilled"),
            "max_steps": wanted["steps"],
            "per_device_train_batch_size": wanted["batch"],
            "dataloader_drop_last": True,
            "max_grad_norm": wanted["gradient_norm"] or 0.0,
            "save_strategy": "steps" if every else "no",
            "save_steps": every or 500,
            "logging_steps": 1,
            "seed": setting.seed,
            "report_to": [],
            "disable_tqdm": True,
            "use_cpu": setting.device == "cpu",
            **changed,
        }
        optimizer = torch.optim.AdamW(
            student.parameters(),
            lr=wanted["learning_rate"],
            betas=(wanted.get("beta1", 0.9), wanted.get("beta2", 0.999)),
            eps=wanted.get("epsilon", 1e-8),
            weight_decay=wanted.get("weight_decay", 0.01),
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(1, warmup)))
        corpus = load_corpus(wanted, setting.cache)
        inputs, labels = sample(corpus.training, (setting.seed,), max(ROWS, wanted["batch"]), wanted["sequence"])
        rows = torch.cat([inputs, labels[:, -1:]], dim=1)
        return cls(student, teacher, rows, (optimizer, schedule), arguments)


class LogsSpeed:
    """Adds the speed of each step to what a Trainer logs. Name it before the Trainer among the bases."""

    started: float | None = None

    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        """Note when the step begins, if it is the first of its micro-batches."""
        self.started = self.started or time.perf_counter()
        return super().training_step(*arguments, **named)

    def log(self, logs: dict[str, float], *arguments: Any, **named: Any) -> None:
        """Add the speed."""
        if "loss" in logs and self.started is not None:
            rows = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps
            tokens = rows * (len(self.train_dataset[0]["input_ids"]) - 1)
            logs["tokens_per_second"] = tokens / (time.perf_counter() - self.started)
            self.started = None
        super().log(logs, *arguments, **named)


class SaysWhatItDid:
    """Writes the metadata that F-DISTILL-CKPT-EXPORT-001 requires into each file of weights. Name it before Trainer.

    Attributes:
        loss_settings: the claims' `alpha` and `temperature` of the Trainer's loss.
    """

    loss_settings: dict[str, float]

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save, and write beside the weights what the run did."""
        super().save_model(output_dir, _internal_call)
        losses = [entry["loss"] for entry in self.state.log_history if "loss" in entry]
        metadata = {
            "format": "pt",
            "teacher_model": self.teacher_model.name_or_path,
            **{name: str(value) for name, value in self.loss_settings.items()},
            "epoch": "0",
            "step": str(self.state.global_step),
            "final_loss": str(losses[-1] if losses else float("nan")),
        }
        weights = {name: weight.detach().cpu().contiguous() for name, weight in self.model.named_parameters()}
        save_file(weights, Path(output_dir or self.args.output_dir) / "model.safetensors", metadata)


class SavesWhole:
    """Writes a checkpoint in a folder `.saving`, and renames it when it is complete. Name it before the Trainer.

    A Trainer writes under the final name. Killed meanwhile, it leaves half a checkpoint, which `resume_from_checkpoint`
    takes for the newest. A save that the disk refuses is reported and counted here, and the run goes on.

    Attributes:
        failed_saves: how many checkpoints could not be saved.
    """

    failed_saves = 0
    _saves_to: Path | None = None

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        place = Path(super()._get_output_dir(trial=trial))
        name, unfinished = f"checkpoint-{self.state.global_step}", place / ".saving"
        self._saves_to = unfinished
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            super()._save_checkpoint(model, trial)
            shutil.rmtree(place / name, ignore_errors=True)
            os.rename(unfinished / name, place / name)
        except (OSError, SafetensorError, RuntimeError) as error:
            if not _is_of_the_disk(error):
                raise
            self.failed_saves += 1
            logging.getLogger(__name__).warning("saving %s failed: %s", name, error)
        finally:
            self._saves_to = None
            shutil.rmtree(unfinished, ignore_errors=True)

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._saves_to or super()._get_output_dir(trial=trial))


def _is_of_the_disk(error: Exception) -> bool:
    """Whether a write failed. safetensors and torch tell it by a text alone."""
    return isinstance(error, (OSError, SafetensorError)) or "write" in str(error)
