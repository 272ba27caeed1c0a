"""Watches the steps of a `transformers.Trainer`, and the batches that it fetches."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback

from falsifiers.distill.measuring.trainer_files import TrainerFiles
from falsifiers.distill.running.live_steps import LiveSteps
from harness import Unobserved

_IGNORED = -100
"""The label that transformers excludes from the loss."""

Batch = tuple[Tensor, Tensor]


class StepWatch(TrainerCallback):  # type: ignore[misc]
    """Reports the steps of a Trainer's run.

    Attributes:
        first: the step from which the run started.
        losses: the reported loss of each step.
        saved: the reported checkpoints, without the one that every run makes at its end.
    """

    def __init__(self, trainer: Trainer, on_step: LiveSteps, fetched: Callable[[int, list[Any]], None]) -> None:
        self.first = 0
        self.losses: list[float] = []
        self.saved: list[Path] = []
        self._on_step = on_step
        self._loss: Tensor | float = 0.0
        self._rate = 0.0
        self._logged = 0
        self._gradients: dict[nn.Parameter, Tensor] = {}
        self._pending: tuple[int, dict[str, float]] | None = None
        self._trainer = trainer
        step = trainer.training_step

        def training_step(*arguments: Any, **named: Any) -> Tensor:
            loss: Tensor = step(*arguments, **named)
            self._loss = self._loss + loss.detach()
            return loss

        trainer.training_step = training_step
        on_fetch(trainer, fetched)
        trainer.add_callback(self)

    def tell(self) -> None:
        """Report the last step, unless it is reported already."""
        if self._pending is not None:
            (step, values), self._pending = self._pending, None
            self.losses.append(values["loss"])
            with _with_gradients(self._gradients):
                self._on_step(step, **values)
            self._gradients = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record the step from which the run starts."""
        self.first = self._logged = state.global_step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The batch of the next step is fetched, so the last step is complete."""
        self.tell()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Read the live learning rate, and keep the gradients, which the Trainer drops after the step."""
        self._rate = self._trainer.optimizer.param_groups[0]["lr"]
        self._on_step.prepare(state.global_step + 1, self._trainer.optimizer)
        weights = self._trainer.model.parameters()
        self._gradients = {weight: weight.grad for weight in weights if weight.grad is not None}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step was made. The Trainer logs and saves it next."""
        self._pending = state.global_step, {"loss": float(self._loss), "learning_rate": float(self._rate)}
        self._loss = 0.0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """A log of one step has the reported values. A log of several steps has their means."""
        if not logs or "loss" not in logs:
            return
        if state.global_step - self._logged == 1 and self._pending is not None:
            self._pending[1].update(
                {name: float(value) for name, value in logs.items() if isinstance(value, (int, float))}
            )
        self._logged = state.global_step

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record a periodic checkpoint."""
        files = TrainerFiles(lambda: self._trainer)
        if files.is_periodic(state.global_step):
            self.saved.append(Path(args.output_dir) / files.name(state.global_step))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the last step of the last epoch before anything else changes the weights."""
        if control.should_training_stop or state.global_step >= state.max_steps:
            self.tell()


@contextmanager
def _with_gradients(held: Mapping[nn.Parameter, Tensor]) -> Iterator[None]:
    """Show the gradients of the last step on the weights while nothing trains.

    If the Trainer set them to zero instead of None, they are lost, and none are shown.
    """
    gradients = {weight: weight.grad for weight in held}
    for weight, gradient in held.items():
        weight.grad = gradient if gradients[weight] is None else None
    try:
        yield
    finally:
        for weight, gradient in gradients.items():
            weight.grad = gradient


def on_fetch(trainer: Trainer, fetched: Callable[[int, list[Any]], None]) -> None:
    """Pass on the samples of each step, with its number, once the Trainer has fetched them."""
    fetch = trainer.get_batch_samples

    def get_batch_samples(*arguments: Any, **named: Any) -> Any:
        samples = fetch(*arguments, **named)
        fetched(trainer.state.global_step + 1, samples[0])
        return samples

    trainer.get_batch_samples = get_batch_samples


def inputs_and_labels(samples: list[Any]) -> Batch | Unobserved:
    """Token ids and next tokens [batch, sequence] of a step's micro-batches; hidden if they are not plain text.

    transformers' models shift labels themselves, so their labels equal the inputs. Then the last token is only a label.
    """
    pairs = []
    for sample in samples:
        try:
            inputs, labels = sample["input_ids"], sample["labels"]
        except (KeyError, TypeError, IndexError):
            return Unobserved("the batch has no input_ids and labels")
        mask = sample.get("attention_mask")
        if (labels[:, 1:] == _IGNORED).any() or (mask is not None and not mask.all()):
            return Unobserved("the batch leaves out tokens, by its labels or its attention mask")
        if inputs.shape != labels.shape or inputs.dim() != 2:
            return Unobserved(f"the batch has input_ids {tuple(inputs.shape)} and labels {tuple(labels.shape)}")
        shifts = torch.equal(inputs[:, 1:], labels[:, 1:])  # the first label has no part in a loss, whatever it is
        pairs.append((inputs[:, :-1], labels[:, 1:]) if shifts else (inputs, labels))
    if not pairs or len({inputs.shape[1] for inputs, _ in pairs}) != 1:
        return Unobserved("the rows of a step have different lengths")
    inputs, labels = (torch.cat(parts).detach().cpu() for parts in zip(*pairs, strict=True))
    return inputs, labels


def labels_are_inputs(sample: Mapping[str, Tensor]) -> bool:
    """Whether the labels of a batch equal its inputs, so that the loss shifts them."""
    if not sample.keys() >= {"input_ids", "labels"}:
        return False
    return torch.equal(sample["input_ids"][:, 1:], sample["labels"][:, 1:])
