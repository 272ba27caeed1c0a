"""F-DISTILL-EMBED-001: every step moves the embedding, and no step's gradient is carried into the next."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from falsifiers.distill.measuring.true_gradients import TrueGradients
from falsifiers.distill.running.shown import shown
from falsifiers.distill.running.training import StepWatch, train
from falsifiers.distill.subject import Distillation
from harness import NotMeasured, Trial, for_external, not_observable

__all__ = ["falsify"]


@for_external(not_observable("the gradients that a step leaves on the weights are not seen from outside"))
def falsify(trial: Trial[Distillation]) -> None:
    """After each step, look at the embedding, and at the gradients that the step left on all weights."""
    with trial.subject_fault():
        weights = trial.subject.student_weights()
    name = str(trial.parameters["embedding"])
    if name not in weights:
        raise NotMeasured(
            f"the student has no parameter {name}; say what its embedding is called with -P embedding=NAME, "
            f"such as one of {', '.join(sorted(weights)[:3])}"
        )
    watch = train(trial, _Watch).watch
    trial.measure(rows_moved=watch.rows_moved, gradient_errors=watch.gradient_errors)


class _Watch(StepWatch):
    """Compares the weights and their gradients after a step with what was before it.

    Attributes:
        rows_moved: of each step, the share of the embedding's rows that moved, without those that began as zeros.
        gradient_errors: of each step, the error of the gradients that it left; see `TrueGradients`.
    """

    def __init__(self, trial: Trial[Distillation]) -> None:
        """Copy the first weights."""
        super().__init__(trial)
        self._name = str(trial.parameters["embedding"])
        self._true = TrueGradients(trial)
        self._before = _copied(trial.subject.student_weights())
        self._rows = self._before[self._name].any(dim=-1)
        self.rows_moved: list[float] = []
        self.gradient_errors: list[float] = []

    def __call__(self, step: int, **values: float) -> None:
        """Compare, after the step is counted."""
        super().__call__(step, **values)
        subject = self._trial.subject
        weights, teacher = subject.student_weights(), shown(subject, "teacher_weights")
        batch = shown(subject, "batch", self.steps)
        with self._trial.falsifier_fault():
            before, self._before = self._before, _copied(weights)
            moved = (self._before[self._name] != before[self._name]).any(dim=-1)
            self.rows_moved.append(float(moved[self._rows].double().mean()))
            gradients = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
            if not gradients:
                raise NotMeasured("this subject leaves no gradients on its weights after a step")
            self.gradient_errors.append(self._true.error(gradients, before, teacher, batch))


def _copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in weights.items()}
