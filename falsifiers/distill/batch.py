"""F-DISTILL-BATCH-001: all rows of a batch train the student with equal weight, and with the configured loss."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from falsifiers.distill.dumped_step import DumpedRun
from falsifiers.distill.kd.subject import IGNORED
from falsifiers.distill.measuring.largest import largest
from falsifiers.distill.measuring.true_gradients import TrueGradients
from falsifiers.distill.oracle.corpus import Text, draw
from falsifiers.distill.oracle.qwen2 import SHAPES
from falsifiers.distill.running.shown import shown
from falsifiers.distill.running.training import train
from falsifiers.distill.subject import Gradients
from harness import Trial, Unobserved, for_external, propagates

_BELOW = 0.999  # of the limit; rounding leaves a clipped gradient a little below it
_CLIPPED = "clipping took a factor from a gradient; add -P gradient_norm=1e6"


def examine_dumps(trial: Trial[Any]) -> None:
    """Compare the gradient of each step in a dump with the gradient of that step's batch.

    Clipping rescales a gradient by an unknown factor, so a clipped gradient is left out.
    """
    limit = trial.parameters["gradient_norm"]
    run = DumpedRun(trial)
    rows, errors = [], []
    for dump, before in run.steps():
        rows.append(0 if dump.inputs is None else len(dump.inputs))
        error = run.gradient_error(before, dump)
        errors.append(Unobserved(_CLIPPED) if limit and _norm(dump.gradients) > _BELOW * limit else error)
    trial.measure(
        rows=min(rows) or Unobserved("a dump holds no batch"),
        gradient_error=errors[0],
        gradient_error_again=propagates(largest)(errors[1:]) if errors[1:] else Unobserved("it dumped only one step"),
        gradient_error_of_drawn_tokens=Unobserved("the trainer draws its batches itself"),
    )


@for_external(examine_dumps)
def falsify(trial: Trial[Gradients]) -> None:
    """Compare gradients on text and on tokens drawn from the whole vocabulary; train a few steps; take one again.

    Of the drawn rows, each has another number of tokens that count.
    """
    parameters = trial.parameters
    text = draw(Text.read(parameters, trial.cache).held_out, (trial.seed,), parameters["batch"], parameters["sequence"])
    generator = torch.Generator().manual_seed(trial.seed)
    drawn = torch.randint(SHAPES[parameters["model"]].vocabulary, (2, *text[0].shape), generator=generator)
    drawn[1][torch.arange(text[0].shape[1]) < torch.arange(len(text[0]))[:, None]] = IGNORED
    true = TrueGradients(trial)
    trial.measure(
        rows=len(text[0]),
        gradient_error=_error(trial, true, *text),
        gradient_error_of_drawn_tokens=_error(trial, true, *drawn),
    )
    train(trial)  # which moves the weights; the requested values are read back from a subject that trains
    trial.measure(gradient_error_again=_error(trial, true, *text))


def _norm(gradients: Mapping[str, Tensor]) -> float:
    """The Euclidean norm of all gradients; infinite if there are none."""
    return (
        sum(float(gradient.double().square().sum()) for gradient in gradients.values()) ** 0.5
        if gradients
        else math.inf
    )


def _error(trial: Trial[Gradients], true: TrueGradients, inputs: Tensor, labels: Tensor) -> float:
    """The error of the gradients that the subject computes for this batch; see `TrueGradients`.

    The subject gets copies, so it cannot change the batch of the expected gradients.
    """
    batch = inputs.to(trial.device), labels.to(trial.device)
    with trial.subject_fault():
        seen = trial.subject.gradients(*(tensor.clone() for tensor in batch))
        student, teacher = trial.subject.student_weights(), shown(trial.subject, "teacher_weights")
        if not seen:
            raise ValueError("gradients() returned none")
    return true.error(seen, student, teacher, batch)
