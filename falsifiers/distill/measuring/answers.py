"""Checks that teacher and student answer as the named model does with their weights."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from falsifiers.distill.measuring.held_out import HeldOut
from falsifiers.distill.oracle.answers import IndependentModel, in_tolerances
from falsifiers.distill.running.shown import shown
from falsifiers.distill.subject import Distillation
from harness import Trial, propagates


def measure_answers(trial: Trial[Distillation], held_out: HeldOut) -> None:
    """Measure `student_logits_error` and `teacher_logits_error`, in tolerances, on one held-out batch.

    The other evaluations rely on the logits that the subject returns.
    """
    inputs, _ = held_out.batches[0]
    with trial.subject_fault():
        student = trial.subject.student_weights(), trial.subject.student_logits(inputs)
        teacher = shown(trial.subject, "teacher_weights"), trial.subject.teacher_logits(inputs)
    trial.measure(
        student_logits_error=_error(*student, trial, inputs), teacher_logits_error=_error(*teacher, trial, inputs)
    )


@propagates
def _error(weights: Mapping[str, Tensor], logits: Tensor, trial: Trial[Any], inputs: Tensor) -> float:
    """The largest error of a row. Rows are compared one by one, because float64 logits are large."""
    model = IndependentModel(trial.parameters, trial.device)
    rows = zip(logits.split(1), inputs.split(1), strict=True)
    return max(in_tolerances(seen, model.answer(weights, row), trial.parameters["dtype"]) for seen, row in rows)
