"""A callback that watches Lightning's Trainer from its own process.

Trainer(callbacks=[HarnessCallback("tuesday", learning_rate=3e-4, on_refute="stop")])
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

try:
    Callback: Any = import_module("lightning.pytorch.callbacks").Callback
except ImportError:  # the older package name
    Callback = import_module("pytorch_lightning.callbacks").Callback

from harness.tools.watch.sentinel import Sentinel, is_refuted

__all__ = ["HarnessCallback"]


class HarnessCallback(Callback):  # type: ignore[misc]
    """Watches a fit. With `on_refute="stop"`, the Trainer stops after the refuted step."""

    def __init__(self, name: str = "lightning", **options: Any) -> None:
        """Args:
        options: of `Sentinel`.
        """
        self._name, self._options = name, options
        self.sentinel: Sentinel | None = None
        self._step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin."""
        steps = {"steps": trainer.max_steps} if trainer.max_steps > 0 else {}
        self._step = trainer.global_step
        if trainer.is_global_zero:
            self.sentinel = Sentinel(self._name, **{**steps, **self._options})

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report the step after a batch."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is None or trainer.global_step <= self._step:
            return  # gradients are accumulated
        self._step = trainer.global_step
        rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
        values = {"loss": loss, "learning_rate": max(rates, default=None), "epoch": trainer.current_epoch + 1}
        if is_refuted(self.sentinel, self._step, batch=batch, weights=pl_module, **values):
            trainer.should_stop = True

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End with an error."""
        if self.sentinel is not None:
            self.sentinel.end(1)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End."""
        if self.sentinel is not None:
            self.sentinel.end(None if trainer.should_stop else 0)
