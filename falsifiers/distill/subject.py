"""What the falsifiers of this family need from a subject.

A trainer in this process needs five methods. A command or a finished run has the same five: its weights are those of
its checkpoints, and the profile sets `watch_every` to the checkpoint interval. Claims that compare a subject with an
independent model need more methods, such as `teacher_weights`; without them they are NOT_MEASURED.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from torch import Tensor

from harness import Unobserved, provided

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """What a finished run reports about itself; a falsifier compares it with its own observations.

    A trainer in another process may leave a value out. Then it is `Unobserved`.

    Attributes:
        steps: optimizer steps that the subject counted; after a resume, those since then.
        losses: the training loss of each step in order, computed before that step's update.
        checkpoints: the periodic checkpoints in the order in which they were written.
        export: the file with the trained student.
        failed_saves: the number of periodic checkpoints that could not be saved.
        unreported: why not every step was reported, such as a log of every fiftieth step; empty if each was.
        is_heard: whether steps are known from an output, and not from calls of `OnStep`.
    """

    steps: int
    losses: tuple[float, ...]
    checkpoints: tuple[Path, ...]
    export: Path
    failed_saves: int = 0
    unreported: str = ""
    is_heard: bool = False

    @property
    def every_loss(self) -> tuple[float, ...]:
        """The losses of all steps; hidden if not every step was reported."""
        return self.if_every_step_is_reported(self.losses)

    def if_every_step_is_reported(self, value: T) -> T:
        """The value; hidden if not every step was reported."""
        return provided(Unobserved(self.unreported), value) if self.unreported else value


class OnStep(Protocol):
    """A subject calls this once after each optimizer step, counted from 1, with the step's values by name."""

    def __call__(self, step: int, **values: float) -> None: ...


class Distillation(Protocol):
    """A teacher, a student, and a way to train the student; built as `Subject(setting)`.

    A falsifier that needs several runs builds several subjects. One that kills runs builds them in forked processes. So
    construction is cheap, starts no thread and uses no GPU.
    """

    def distill(self, on_step: OnStep) -> Run:
        """Train the student for the setting's `steps`, write checkpoints and the export, and return the run."""
        ...

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """The teacher's logits [batch, sequence, vocabulary] for token ids [batch, sequence], without gradient."""
        ...

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """The student's logits, shaped as the teacher's; with `weights`, those of its architecture with these."""
        ...

    def student_weights(self) -> Mapping[str, Tensor]:
        """The student's present parameters by name: the live tensors, tied ones once."""
        ...


class Checkpointing(Distillation, Protocol):
    """A distillation that can be resumed."""

    directory: Path
    """The folder of checkpoints and export; it need not exist."""

    def resume(self) -> int:
        """Resume from the newest checkpoint of the directory; return its step, 0 if there is none."""
        ...

    def load(self, path: Path) -> None:
        """Load the weights of an export or a checkpoint."""
        ...


class Gradients(Distillation, Protocol):
    """A trainer that also returns the gradient of a batch; F-DISTILL-BATCH-001 needs that."""

    def gradients(self, inputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """By parameter, the gradient for a step on this batch [rows, sequence], before clipping."""
        ...


class Stepping(Distillation, Protocol):
    """A distillation that makes single steps, with and without its training log."""

    log: Path
    """Where the log goes: one line of JSON for each logged step, with its `step` and `loss`."""

    def steps(self, log_every: int) -> Generator[int]:
        """Make one optimizer step for each item, without end, and log every `log_every`-th; 0 logs none.

        Several of these generators may alternate on one student; the log is complete when they are closed.
        """
        ...


class Precomputing(Distillation, Protocol):
    """A distillation that can precompute its teacher's answers."""

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
    """A trainer that shows everything that determines its next step, so that the oracle can compute the step.

    The gradient of a step, after clipping, may stay on `student_weights()` until the next step; then it is compared
    too. A trainer that reports its learning rate passes `learning_rate` to `OnStep`.
    """

    log: Path
    """The training log, as in `Stepping`."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels [batch, sequence] of a step, counted from 1; the call changes nothing."""
        ...

    def teacher_weights(self) -> Mapping[str, Tensor]:
        """The teacher's parameters by name, as `student_weights` has the student's."""
        ...

    def optimizer_state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """AdamW's live slots by parameter: `exp_avg`, `exp_avg_sq` and `step`; empty before the first step."""
        ...
