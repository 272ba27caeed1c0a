"""Subjects whose training log costs too much time."""

import os
import time

import torch
from torch import Tensor

from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.checkpointing import Checkpointer
from falsifiers.distill.reference.journal import Journal


class _Noting(Distillation):
    """Runs `note` after each logged step."""

    def note(self, journal: Journal, loss: Tensor, started: float) -> None:
        """The defect, after a step with this loss and start time. Wait for the GPU before you read the clock."""
        raise NotImplementedError

    def make_step(self, journal: Journal, checkpointer: Checkpointer) -> Tensor:
        started = time.perf_counter()
        loss = super().make_step(journal, checkpointer)
        if journal.every:
            self.note(journal, loss, started)
        return loss


class ItemOfEveryLayer(_Noting):
    """Fetches the norm of every gradient separately, so the GPU idles once per tensor."""

    def note(self, journal: Journal, loss: Tensor, started: float) -> None:
        norms = {name: weight.grad.norm().item() for name, weight in self.student.named_parameters()}
        journal.write({"gradient_norm": max(norms.values())})


class FlushesEveryLine(_Noting):
    """Writes a line for every tensor, and flushes each to a disk that takes a fifth of a millisecond.

    The delay is simulated, because some disks report a write before it is done. The loss is fetched first, because a
    busy GPU would hide the delay.
    """

    def note(self, journal: Journal, loss: Tensor, started: float) -> None:
        value = loss.item()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as file:
            for name in self.student_weights():
                file.write(f"{name} {value}\n")
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.0002)


class SleepsATenth(_Noting):
    """A logged step takes a tenth longer, as with a server that collects metrics."""

    def note(self, journal: Journal, loss: Tensor, started: float) -> None:
        loss.item()  # wait for the step
        time.sleep(0.1 * (time.perf_counter() - started))


class EvaluatesToLog(_Noting):
    """Runs the student on the batch once more, to log an accuracy."""

    @torch.no_grad()
    def note(self, journal: Journal, loss: Tensor, started: float) -> None:
        inputs, labels = self.batch(self.steps_made)
        hits = self.student(input_ids=inputs, use_cache=False).logits.argmax(-1) == labels
        journal.write({"accuracy": hits.float().mean().item()})
