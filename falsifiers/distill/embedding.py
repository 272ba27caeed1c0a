"""F-DISTILL-EMBED-001: every step moves the embedding, and no step accumulates the gradient of an earlier one."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from falsifiers.distill.dumped_step import DumpedRun
from falsifiers.distill.measuring.true_gradients import TrueGradients
from falsifiers.distill.running.shown import observed, shown
from falsifiers.distill.running.training import StepWatch, train
from falsifiers.distill.subject import Distillation
from harness import NotMeasured, Trial, for_external, propagates


def examine_dumps(trial: Trial[Any]) -> None:
    """Check the embedding and the gradient of each dumped step of a trainer in another process."""
    run, name = DumpedRun(trial), str(trial.parameters["embedding"])
    rows, rows_moved, errors = None, [], []
    for dump, before in run.steps():
        _require(name, dump.after.weights)
        rows = before.weights[name].any(dim=-1) if rows is None else rows
        rows_moved.append(_rows_moved(before.weights[name], dump.after.weights[name], rows))
        errors.append(run.gradient_error(before, dump))
    trial.measure(rows_moved=rows_moved, gradient_errors=propagates(observed)(errors))


@for_external(examine_dumps)
def falsify(trial: Trial[Distillation]) -> None:
    """After each step, check the embedding and the gradients that the step left on all weights."""
    with trial.subject_fault():
        weights = trial.subject.student_weights()
    _require(str(trial.parameters["embedding"]), weights)
    watch = train(trial, _Watch).watch
    trial.measure(rows_moved=watch.rows_moved, gradient_errors=watch.gradient_errors)


class _Watch(StepWatch):
    """Compares the weights and their gradients after a step with the state before it.

    Attributes:
        rows_moved: for each step, the share of the embedding's rows that moved, of those that were not zero at the
            start.
        gradient_errors: for each step, the error of the gradients that it left; see `TrueGradients`.
    """

    def __init__(self, trial: Trial[Distillation]) -> None:
        super().__init__(trial)
        self._name = str(trial.parameters["embedding"])
        self._true = TrueGradients(trial)
        self._before = _copied(trial.subject.student_weights())
        self._rows = self._before[self._name].any(dim=-1)
        self.rows_moved: list[float] = []
        self.gradient_errors: list[float] = []

    def __call__(self, step: int, **values: float) -> None:
        super().__call__(step, **values)
        subject = self._trial.subject
        weights, teacher = subject.student_weights(), shown(subject, "teacher_weights")
        batch = shown(subject, "batch", self.steps)
        with self._trial.falsifier_fault():
            before, self._before = self._before, _copied(weights)
            self.rows_moved.append(_rows_moved(before[self._name], self._before[self._name], self._rows))
            gradients = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
            if not gradients:
                raise NotMeasured("this subject leaves no gradients on its weights after a step")
            self.gradient_errors.append(self._true.error(gradients, before, teacher, batch))


def _require(name: str, weights: Mapping[str, Tensor]) -> None:
    if name not in weights:
        raise NotMeasured(
            f"the student has no parameter {name}; say what its embedding is called with -P embedding=NAME, "
            f"such as one of {', '.join(sorted(weights)[:3])}"
        )


def _rows_moved(before: Tensor, after: Tensor, rows: Tensor) -> float:
    """The share of these rows of the embedding that moved."""
    return float((after != before).any(dim=-1)[rows].double().mean())


def _copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in weights.items()}
