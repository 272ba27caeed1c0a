"""A callback that watches transformers' Trainer, or a subclass of it, from its own process.

    trainer.add_callback(HarnessCallback("tuesday", on_refute="stop"))

It judges what the Trainer logs, its weights and its checkpoints. Set `logging_steps=1` to have each loss judged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback

from harness.tools.watch.sentinel import Sentinel, is_refuted

__all__ = ["HarnessCallback"]

_SCHEDULES: Final = ("constant", "linear", "cosine")


class HarnessCallback(TrainerCallback):
    """Watches a run of a Trainer. With `on_refute="stop"`, the Trainer stops after the refuted step."""

    def __init__(self, name: str = "transformers", **options: Any) -> None:
        """Args:
        options: of `Sentinel`. Requested values default to the Trainer's arguments.
        """
        self._name, self._options = name, options
        self.sentinel: Sentinel | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Begin."""
        schedule = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
        requested = {
            "steps": state.max_steps,
            "learning_rate": args.learning_rate,
            "warmup_steps": args.get_warmup_steps(state.max_steps),
            "schedule": schedule if schedule in _SCHEDULES else "",
            "optimizer": "adamw" if "adamw" in str(args.optim) else "",
        }
        if state.is_world_process_zero:
            self.sentinel = Sentinel(self._name, **{**requested, **self._options})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        """Report a logged step."""
        values = {name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))}
        if "loss" in values and is_refuted(self.sentinel, state.global_step, weights=others.get("model"), **values):
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Report a checkpoint."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if self.sentinel is not None and folder.exists():
            self.sentinel.checkpoint(state.global_step, folder)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """End."""
        if self.sentinel is not None:
            self.sentinel.end(0 if state.global_step >= state.max_steps else None)
