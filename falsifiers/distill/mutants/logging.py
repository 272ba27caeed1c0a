"""Subjects whose training log costs too much: one known defect each."""

from __future__ import annotations

import os
import time

import torch
from torch import Tensor

from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.checkpointing import Checkpointer
from falsifiers.distill.reference.journal import Journal

__all__ = [
    "EvaluatesToLog",
    "FlushesEveryLine",
    "ItemOfEveryLayer",
    "SleepsATenth",
]


class _Noting(Distillation):
    """Does something after each step that is logged."""

    def note(self, journal: Journal, loss: Tensor, started: float) -> None:
        """The defect, after a step with this loss and start time. Wait for the GPU before you read the clock."""
        raise NotImplementedError

    def make_step(self, journal: Journal, checkpointer: Checkpointer) -> Tensor:
        """A step, and more where there is a log."""
        started = time.perf_counter()
        loss = super().make_step(journal, checkpointer)
        if journal.every:
            self.note(journal, loss, started)
        return loss


class ItemOfEveryLayer(_Noting):
    """The norm of every gradient is fetched by itself, so that the GPU runs dry once a tensor."""

    def note(self, journal: Journal, loss: Tensor, started: float) -> None:
        """One synchronisation a tensor."""
        norms = {name: weight.grad.norm().item() for name, weight in self.student.named_parameters()}
        journal.write({"gradient_norm": max(norms.values())})


class FlushesEveryLine(_Noting):
    """There is a line for every tensor, and each is flushed to a disk that takes a fifth of a millisecond for it.

    A disk that only says that it has written would hide the defect on some machines, and so would a GPU that is still
    busy with the step: a line that tells the loss has to wait for that.
    """

    def note(self, journal: Journal, loss: Tensor, started: float) -> None:
        """One fsync a tensor."""
        told = loss.item()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as file:
            for name in self.student_weights():
                file.write(f"{name} {told}\n")
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.0002)


class SleepsATenth(_Noting):
    """A logged step takes a tenth longer."""

    def note(self, journal: Journal, loss: Tensor, started: float) -> None:
        """Wait for a server that collects metrics."""
        loss.item()  # the step has been made
        time.sleep(0.1 * (time.perf_counter() - started))


class EvaluatesToLog(_Noting):
    """To log an accuracy, the batch goes through the student once more."""

    @torch.no_grad()
    def note(self, journal: Journal, loss: Tensor, started: float) -> None:
        """Another forward pass."""
        inputs, labels = self.batch(self.steps_made)
        hits = self.student(input_ids=inputs, use_cache=False).logits.argmax(-1) == labels
        journal.write({"accuracy": hits.float().mean().item()})
