"""A distillation by `transformers.Trainer`, as a subject in the harness's process.

    harness run F-DISTILL-SMOKE-001 --subject hf:trainers.kd_trainer:build

`build` has the claim's parameters as arguments. Copy this file for a Trainer of your own: replace the models and the
data, and keep the parameters that a claim sets.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer, TrainingArguments

from falsifiers.distill.reference import Distillation
from falsifiers.distill.text.corpus import load_corpus, sample
from harness import Setting

ROWS = 640
"""Rows of the training text. A longer run goes through them again."""


class KDTrainer(Trainer):  # type: ignore[misc]
    """Learns from the next tokens and from a frozen teacher."""

    def __init__(self, *, teacher: PreTrainedModel, alpha: float, temperature: float, **options: Any) -> None:
        """Take the teacher as it is."""
        super().__init__(**options)
        self.teacher_model = teacher.to(self.args.device).requires_grad_(False).eval()
        self.alpha, self.temperature = alpha, temperature
        self.model_accepts_loss_kwargs = False  # compute_loss takes a mean, so the Trainer divides by its micro-batches
        self.started: float | None = None

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        """`alpha * CE + (1 - alpha) * T^2 * KL(teacher || student)`, both a mean over the tokens."""
        tokens, labels = inputs["input_ids"][:, :-1], inputs["labels"][:, 1:]
        outputs = model(input_ids=tokens, use_cache=False)
        with torch.no_grad():
            taught = self.teacher_model(input_ids=tokens, use_cache=False).logits
        student, teacher = (logits.flatten(0, 1).float() for logits in (outputs.logits, taught))
        divergence = F.kl_div(
            F.log_softmax(student / self.temperature, dim=-1),
            F.log_softmax(teacher / self.temperature, dim=-1),
            log_target=True,
            reduction="batchmean",
        )
        entropy = F.cross_entropy(student, labels.flatten())
        loss = self.alpha * entropy + (1 - self.alpha) * self.temperature**2 * divergence
        return (loss, outputs) if return_outputs else loss

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

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save, and write beside the weights what the run did."""
        super().save_model(output_dir, _internal_call)
        losses = [entry["loss"] for entry in self.state.log_history if "loss" in entry]
        metadata = {
            "format": "pt",
            "teacher_model": self.teacher_model.name_or_path,
            "temperature": str(self.temperature),
            "alpha": str(self.alpha),
            "epoch": "0",
            "step": str(self.state.global_step),
            "final_loss": str(losses[-1] if losses else float("nan")),
        }
        weights = {name: weight.detach().cpu().contiguous() for name, weight in self.model.named_parameters()}
        save_file(weights, Path(output_dir or self.args.output_dir) / "model.safetensors", metadata)


def build(setting: Setting) -> KDTrainer:
    """Build the Trainer that a claim's parameters describe."""
    return new_trainer(setting)


def new_trainer(setting: Setting, kind: type[KDTrainer] = KDTrainer, **changed: Any) -> KDTrainer:
    """The same as another class, and with some of its `TrainingArguments` changed."""
    wanted = setting.parameters
    if wanted["steps"] < 1:
        raise ValueError(f"{wanted['steps']} steps were asked for; a Trainer would take them for none given")
    models = Distillation(setting)  # the models that the claims compare with: any two of their shapes would do
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
    student, teacher = models.student, models.teacher
    teacher.name_or_path = f"{wanted['model']}-teacher-seed-{wanted['teacher_seed']}"
    optimizer = torch.optim.AdamW(student.parameters(), lr=wanted["learning_rate"])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(1, warmup)))
    corpus = load_corpus(wanted, setting.cache)
    inputs, labels = sample(corpus.training, (setting.seed,), max(ROWS, wanted["batch"]), wanted["sequence"])
    rows = torch.cat([inputs, labels[:, -1:]], dim=1)
    return kind(
        teacher=teacher,
        alpha=wanted["alpha"],
        temperature=wanted["temperature"],
        model=student,
        args=TrainingArguments(**arguments),
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        optimizers=(optimizer, schedule),
    )
