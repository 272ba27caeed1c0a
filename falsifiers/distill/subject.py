"""What the falsifiers of this family need from a subject.

A trainer in this process needs five methods. A command or a finished run fits behind the same five: its weights are
those of its checkpoints, and the profile sets `watch_every` to their distance. Claims that compare a subject with an
independent model need further methods, such as `teacher_weights`; without them they are NOT_MEASURED.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from torch import Tensor

from harness import Unobserved, provided

__all__ = [
    "Checkpointing",
    "Distillation",
    "Gradients",
    "OnStep",
    "Precomputing",
    "Run",
    "Shadowed",
    "Stepping",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """What a finished run says about itself; a falsifier compares it with what it saw.

    A trainer in another process may leave something out. Then the value is `Unobserved`.

    Attributes:
        steps: optimizer steps that the subject believes to have made, after a resume those since then.
        losses: the training loss of each step in order, computed before that step's update.
        checkpoints: the periodic checkpoints in the order in which they were written.
        export: the file that holds the trained student.
        failed_saves: how many periodic checkpoints could not be saved.
        untold: why not every step was told, for example because a log names only every fiftieth; empty if each was.
        is_heard: whether steps are known from an output, and not from calls out of the training loop.
    """

    steps: int
    losses: tuple[float, ...]
    checkpoints: tuple[Path, ...]
    export: Path
    failed_saves: int = 0
    untold: str = ""
    is_heard: bool = False

    @property
    def every_loss(self) -> tuple[float, ...]:
        """The losses of all steps; hidden if not every step was told."""
        return self.if_every_step_is_told(self.losses)

    def if_every_step_is_told(self, value: T) -> T:
        """The value; hidden if not every step was told."""
        return provided(Unobserved(self.untold), value) if self.untold else value


class OnStep(Protocol):
    """What a subject calls once after each optimizer step, counting from 1, with the step's values by name."""

    def __call__(self, step: int, **values: float) -> None: ...


class Distillation(Protocol):
    """A teacher, a student, and a way to train the one on the other; built as `Subject(setting)`.

    A falsifier that needs several runs builds several subjects. One that kills runs builds them in forked processes. So
    building a subject is cheap, starts no thread and touches no GPU.
    """

    def distill(self, on_step: OnStep) -> Run:
        """Train the student for the setting's `steps`, write checkpoints and the export, and report the run."""
        ...

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """The teacher's logits [batch, sequence, vocabulary] for token ids [batch, sequence], without gradient."""
        ...

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """The student's logits, shaped as the teacher's; with `weights`, through the same architecture with those."""
        ...

    def student_weights(self) -> Mapping[str, Tensor]:
        """The student's parameters by name as they are now: the live tensors, tied ones once."""
        ...


class Checkpointing(Distillation, Protocol):
    """A distillation that can be resumed."""

    directory: Path
    """Where checkpoints and export go; it need not exist."""

    def resume(self) -> int:
        """Resume from the newest checkpoint of the directory; return its step, 0 if there is none."""
        ...

    def load(self, path: Path) -> None:
        """Load the weights of an export or a checkpoint."""
        ...


class Gradients(Distillation, Protocol):
    """A trainer that also shows the gradient of a batch; F-DISTILL-BATCH-001 needs that."""

    def gradients(self, inputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """By parameter, the gradient that a step on this batch [rows, sequence] takes, before clipping."""
        ...


class Stepping(Distillation, Protocol):
    """A distillation whose steps can be made one by one, with and without its training log."""

    log: Path
    """Where the log goes: one line of JSON for each logged step, with its `step` and `loss`."""

    def steps(self, log_every: int) -> Generator[int]:
        """Make one optimizer step for each item, without end, and log every `log_every`-th; 0 logs none.

        Several of these generators may take turns with one student; the log is complete when they are closed.
        """
        ...


class Precomputing(Distillation, Protocol):
    """A distillation whose teacher's answers can be computed beforehand."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels [batch, sequence] of a step."""
        ...

    def precompute(self, path: Path, top_k: int) -> Path:
        """Write the teacher's `top_k` largest logits for the batches of all steps into one file; return its path."""
        ...

    def cached_logits(self, path: Path, step: int) -> Tensor:
        """The teacher's logits [batch, sequence, vocabulary] for a step's batch, read from the file."""
        ...


class Shadowed(Checkpointing, Protocol):
    """A trainer that shows all that its next step follows from, so that another implementation can compute the step.

    The gradient of a step may stay on `student_weights()` until the next one, after clipping; then it is compared too.
    A trainer that reports its learning rate hands `learning_rate` to `OnStep`.
    """

    log: Path
    """The training log, as in `Stepping`."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels [batch, sequence] of a step, counted from 1; asking changes nothing."""
        ...

    def teacher_weights(self) -> Mapping[str, Tensor]:
        """The teacher's parameters by name, as `student_weights` has the student's."""
        ...

    def optimizer_state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """By parameter, AdamW's live slots: `exp_avg`, `exp_avg_sq` and `step`; empty before the first step."""
        ...
