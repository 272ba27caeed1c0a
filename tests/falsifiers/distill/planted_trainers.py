"""Trainers with one planted defect each, and healthy ones of other kinds."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from harness import Setting
from tests.falsifiers.distill.small_distillation import some_text, train
from trainers.kd_trainer import KDTrainer, build, new_trainer

STOPS_AFTER = 2


class _ExportsInitial(KDTrainer):
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        super().save_model(output_dir, _internal_call)
        if not _internal_call:
            save_file(self.first, Path(str(output_dir)) / "model.safetensors")


def exports_initial(setting: Setting) -> KDTrainer:
    """The export has the first weights of the student."""
    trainer = new_trainer(setting, _ExportsInitial)
    trainer.first = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    return trainer


class _Overstates(KDTrainer):
    def train(self, *arguments: Any, **named: Any) -> Any:
        return super().train(*arguments, **named)._replace(global_step=self.asked)


def overstates(setting: Setting) -> KDTrainer:
    """Stops early, and reports the requested number of steps."""
    trainer = new_trainer(setting, _Overstates, max_steps=min(STOPS_AFTER, setting.parameters["steps"]))
    trainer.asked = setting.parameters["steps"]
    return trainer


class _Idle(KDTrainer):
    def log(self, logs: dict[str, float], *arguments: Any, **named: Any) -> None:
        if "loss" in logs:
            logs["loss"] = 5.0 / self.state.global_step
        super().log(logs, *arguments, **named)


def idle(setting: Setting) -> KDTrainer:
    """The optimizer does nothing, and the logged losses fall."""
    trainer = new_trainer(setting, _Idle)
    trainer.optimizer.step = lambda *_, **__: None
    return trainer


def own_teacher(setting: Setting) -> KDTrainer:
    """The student is its own teacher."""
    trainer = build(setting)
    trainer.teacher_model = trainer.model
    return trainer


class _ShiftsTwice(KDTrainer):
    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *arguments: Any, **named: Any) -> Any:
        labels = torch.cat([inputs["labels"][:, 1:], inputs["labels"][:, -1:]], dim=1)
        return super().compute_loss(model, {**inputs, "labels": labels}, *arguments, **named)


def shifts_twice(setting: Setting) -> KDTrainer:
    """Learns the token after the next one."""
    return new_trainer(setting, _ShiftsTwice)


class _DividesTwice(KDTrainer):
    def compute_loss(self, *arguments: Any, **named: Any) -> Any:
        return super().compute_loss(*arguments, **named) / self.args.gradient_accumulation_steps


def accumulates(setting: Setting) -> KDTrainer:
    """Healthy: half of the batch twice."""
    return _accumulates(setting, KDTrainer)


def _accumulates(setting: Setting, kind: type[KDTrainer]) -> KDTrainer:
    half = setting.parameters["batch"] // 2
    return new_trainer(setting, kind, gradient_accumulation_steps=2, per_device_train_batch_size=half)


def never_divides(setting: Setting) -> KDTrainer:
    """Sums the means of the micro-batches, as a Trainer does with a loss that ignores num_items_in_batch."""
    trainer = accumulates(setting)
    trainer.model_accepts_loss_kwargs = True
    return trainer


def divides_twice(setting: Setting) -> KDTrainer:
    """Divides by the number of micro-batches, in addition to the Trainer's own division."""
    return _accumulates(setting, _DividesTwice)


def restarts_data(setting: Setting) -> KDTrainer:
    """Goes through the data from the beginning after it is resumed."""
    return new_trainer(setting, KDTrainer, ignore_data_skip=True)


class _SavesBefore(KDTrainer):
    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        self.before = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
        return super().training_step(*arguments, **named)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        super().save_model(output_dir, _internal_call)
        if _internal_call:
            save_file(self.before, Path(str(output_dir)) / "model.safetensors")


def saves_before(setting: Setting) -> KDTrainer:
    """Checkpoints have the weights of the step before."""
    return new_trainer(setting, _SavesBefore)


class _SavesInPlace(KDTrainer):
    _save_checkpoint = Trainer._save_checkpoint


def saves_in_place(setting: Setting) -> KDTrainer:
    """Writes a checkpoint under its final name, as a Trainer does by default."""
    return new_trainer(setting, _SavesInPlace)


def steps_twice(setting: Setting) -> KDTrainer:
    """The optimizer steps twice, and one step is counted."""
    trainer = build(setting)
    step = trainer.optimizer.step
    trainer.optimizer.step = lambda *_, **__: (step(), step())[0]
    return trainer


def schedules_itself(setting: Setting) -> KDTrainer:
    """Healthy: the Trainer's own optimizer, and its own schedule, whose first rate is 0."""
    return _schedules_itself(setting, KDTrainer)


def descends(setting: Setting) -> KDTrainer:
    """Healthy: the same with another optimizer."""
    return _schedules_itself(setting, KDTrainer, optim="sgd")


def _schedules_itself(setting: Setting, kind: type[KDTrainer], **changed: Any) -> KDTrainer:
    own = {"lr_scheduler_type": "cosine", "warmup_steps": 2, "learning_rate": setting.parameters["learning_rate"]}
    trainer = new_trainer(setting, kind, **own, **changed)
    trainer.optimizer = trainer.lr_scheduler = None
    return trainer


class _Rests(KDTrainer):
    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        if self.state.global_step >= self.state.max_steps // 2:
            for group in self.optimizer.param_groups:
                group["lr"] = 0.0
        return super().training_step(*arguments, **named)


def rests(setting: Setting) -> KDTrainer:
    """The rate is 0 in the second half."""
    return _schedules_itself(setting, _Rests)


class _StepsTwice(KDTrainer):
    def create_optimizer(self, *arguments: Any, **named: Any) -> torch.optim.Optimizer:
        optimizer = super().create_optimizer(*arguments, **named)
        step = optimizer.step
        optimizer.step = lambda *_, **__: (step(), step())[0]
        return optimizer


def steps_twice_by_its_own_schedule(setting: Setting) -> KDTrainer:
    """The optimizer steps twice. The claim expects another schedule."""
    return _schedules_itself(setting, _StepsTwice)


class _IdleAtFirst(KDTrainer):
    def create_optimizer(self, *arguments: Any, **named: Any) -> torch.optim.Optimizer:
        optimizer = super().create_optimizer(*arguments, **named)
        step = optimizer.step
        optimizer.step = lambda *_, **__: None if self.state.global_step < 1 else step()
        return optimizer


def idle_at_first(setting: Setting) -> KDTrainer:
    """The optimizer does nothing in the first step, whose rate is 0."""
    return _schedules_itself(setting, _IdleAtFirst)


def of_gpt2(steps: int, batch: int, seed: int, output_dir: str, rows: int = 8, **_: object) -> Trainer:
    """Healthy: another architecture without a teacher, with the Trainer's own optimizer and logging."""
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=output_dir,
        max_steps=steps,
        per_device_train_batch_size=batch,
        save_strategy="no",
        seed=seed,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    tokens = torch.randint(256, (rows, 16))
    return Trainer(model=model, args=arguments, train_dataset=[{"input_ids": row, "labels": row} for row in tokens])


class _Taught(Trainer):  # type: ignore[misc]
    """Learns from a frozen teacher alone."""

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        tokens = inputs["input_ids"]
        with torch.no_grad():
            taught = self.teacher_model(tokens).logits.flatten(0, 1).log_softmax(-1)
        answer = model(tokens).logits.flatten(0, 1).log_softmax(-1)
        return functional.kl_div(answer, taught, log_target=True, reduction="batchmean")


def llama(seed: int) -> LlamaForCausalLM:
    """A fresh Llama on bytes."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, num_key_value_heads=1, max_position_embeddings=64, **sizes))


@functools.cache
def llama_that_knows() -> LlamaForCausalLM:
    """A Llama that has learned `some_text`."""
    teacher = llama(1)
    with torch.enable_grad():
        train(teacher, some_text(), 60)
    return teacher


def of_llama(setting: Setting) -> Trainer:
    """Healthy: another architecture with a teacher, and its own text for the evaluation."""
    wanted = setting.parameters
    tokens = torch.frombuffer(bytearray(some_text()), dtype=torch.uint8).long().unfold(0, 32, 32)
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = TrainingArguments(
        output_dir=str(setting.workspace),
        max_steps=wanted["steps"],
        per_device_train_batch_size=wanted["batch"],
        learning_rate=0.02,
        lr_scheduler_type="cosine",
        warmup_steps=5,
        logging_steps=1,
        save_strategy="no",
        seed=setting.seed,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = _Taught(model=llama(2), args=arguments, train_dataset=rows[100:], eval_dataset=rows[:100])
    trainer.teacher_model = llama_that_knows()
    return trainer


def of_llama_that_answers_as_its_teacher(setting: Setting) -> Trainer:
    """The optimizer does nothing. The student's forward pass calls the teacher."""
    trainer = of_llama(setting)
    trainer.create_optimizer()
    trainer.optimizer.step = lambda *_, **__: None
    student, teacher = trainer.model, trainer.teacher_model
    own = student.forward

    @functools.wraps(own)
    def forward(*given: Any, **named: Any) -> Any:
        return (own if torch.is_grad_enabled() else teacher)(*given, **named)

    student.forward = forward
    return trainer


def of_llama_its_own_teacher(setting: Setting) -> Trainer:
    """The teacher is the student before the run."""
    trainer = of_llama(setting)
    trainer.teacher_model = llama(2)
    return trainer


def forgets_steps(seed: int, output_dir: str) -> Trainer:
    """A function without an argument for the number of steps."""
    raise AssertionError("never called")


def no_trainer(**_: object) -> str:
    """Returns an object that is not a Trainer."""
    return "a trainer"
