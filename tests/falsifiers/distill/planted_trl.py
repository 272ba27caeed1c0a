"""TRL's Trainers with one planted defect each: `gkd_idle`, `sft_shifts_twice` and so on, as FUNCTION of `hf:`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from harness import Setting
from trainers import trl_gkd, trl_sft

STOPS_AFTER = 2


class _ExportsInitial:
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        super().save_model(output_dir, _internal_call)  # type: ignore[misc]
        if not _internal_call:
            save_file(self.first, Path(str(output_dir)) / "model.safetensors")  # type: ignore[attr-defined]


class _Overstates:
    def train(self, *arguments: Any, **named: Any) -> Any:
        return super().train(*arguments, **named)._replace(global_step=self.asked)  # type: ignore[misc, attr-defined]


class _Idle:
    def log(self, logs: dict[str, float], *arguments: Any, **named: Any) -> None:
        if "loss" in logs:
            logs["loss"] = 5.0 / self.state.global_step  # type: ignore[attr-defined]
        super().log(logs, *arguments, **named)  # type: ignore[misc]


class _ShiftsLabels:
    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *arguments: Any, **named: Any) -> Any:
        labels = torch.cat([inputs["labels"][:, 1:], inputs["labels"][:, -1:]], dim=1)
        return super().compute_loss(model, {**inputs, "labels": labels}, *arguments, **named)  # type: ignore[misc]


class _ShiftsTeacher:
    @staticmethod
    def generalized_jsd_loss(student_logits: Tensor, teacher_logits: Tensor, **named: Any) -> Tensor:
        shifted = teacher_logits.roll(-1, dims=1)
        return trl_gkd.GKD.generalized_jsd_loss(student_logits=student_logits, teacher_logits=shifted, **named)


class _DividesTwice:
    def compute_loss(self, *arguments: Any, **named: Any) -> Any:
        steps = self.args.gradient_accumulation_steps  # type: ignore[attr-defined]
        return super().compute_loss(*arguments, **named) / steps  # type: ignore[misc]


class _SavesBefore:
    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        weights = self.model.named_parameters()  # type: ignore[attr-defined]
        self.before = {name: weight.detach().clone() for name, weight in weights}
        found: Tensor = super().training_step(*arguments, **named)  # type: ignore[misc]
        return found

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        super().save_model(output_dir, _internal_call)  # type: ignore[misc]
        if _internal_call:
            save_file(self.before, Path(str(output_dir)) / "model.safetensors")


class _Healthy:
    pass


def _of(module: Any, base: type, mixin: type, change: Callable[[Any, Setting], None] | None, halves: bool) -> Any:
    def build(setting: Setting) -> Any:
        changed: dict[str, Any] = {}
        if halves:
            half = setting.parameters["batch"] // 2
            changed = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": half}
        if mixin is _Overstates:
            changed["max_steps"] = min(STOPS_AFTER, setting.parameters["steps"])
        if change is _restarts:
            changed["ignore_data_skip"] = True
        trainer = module.new_trainer(setting, type(mixin.__name__, (mixin, base), {}), **changed)
        if change is not None:
            change(trainer, setting)
        return trainer

    return build


def _keeps_first(trainer: Any, setting: Setting) -> None:
    trainer.first = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def _knows_what_was_asked(trainer: Any, setting: Setting) -> None:
    trainer.asked = setting.parameters["steps"]


def _stands_still(trainer: Any, setting: Setting) -> None:
    trainer.optimizer.step = lambda *_, **__: None


def _teaches_itself(trainer: Any, setting: Setting) -> None:
    trainer.teacher_model = trainer.model


def _forgets_quickly(trainer: Any, setting: Setting) -> None:
    for group in trainer.optimizer.param_groups:
        group["betas"] = (group["betas"][0], 0.95)


def _restarts(trainer: Any, setting: Setting) -> None:
    """`ignore_data_skip` makes a resumed run begin its data again."""


_PLANTED: Mapping[str, tuple[type, Callable[[Any, Setting], None] | None, bool]] = {
    "accumulates": (_Healthy, None, True),
    "exports_initial": (_ExportsInitial, _keeps_first, False),
    "overstates": (_Overstates, _knows_what_was_asked, False),
    "idle": (_Idle, _stands_still, False),
    "divides_twice": (_DividesTwice, None, True),
    "restarts_data": (_Healthy, _restarts, False),
    "saves_before": (_SavesBefore, None, False),
    "another_beta": (_Healthy, _forgets_quickly, False),
}

for _name, _planted in _PLANTED.items():
    globals()[f"gkd_{_name}"] = _of(trl_gkd, trl_gkd.GKD, *_planted)
    globals()[f"sft_{_name}"] = _of(trl_sft, trl_sft.SFT, *_planted)
globals()["gkd_shifts_twice"] = _of(trl_gkd, trl_gkd.GKD, _ShiftsTeacher, None, False)
globals()["sft_shifts_twice"] = _of(trl_sft, trl_sft.SFT, _ShiftsLabels, None, False)
globals()["gkd_own_teacher"] = _of(trl_gkd, trl_gkd.GKD, _Healthy, _teaches_itself, False)
