"""F-DISTILL-EMBED-001: every step moves the embedding, and no step's gradient is carried into the next."""

from __future__ import annotations

from torch import Tensor

from falsifiers.distill.inspection import snapshot
from falsifiers.distill.subject import Distillation
from falsifiers.distill.watch import StepWatch, read_back
from harness import NotMeasured, NotShown, Trial

__all__ = ["falsify"]


def falsify(trial: Trial[Distillation]) -> None:
    """After each step look at the embedding, and at the gradient that the step left behind on it and on the rest."""
    if trial.is_elsewhere:
        raise NotShown("the gradients that a step leaves on the weights are not seen from outside")
    with trial.subject_fault():
        weights = trial.subject.student_weights()
    if _name(trial) not in weights:
        raise NotMeasured(
            f"the student has no parameter {_name(trial)}; say what its embedding is called with -P embedding=NAME, "
            f"such as one of {', '.join(sorted(weights)[:3])}"
        )
    before = snapshot({_name(trial): weights[_name(trial)]})[_name(trial)]
    rows = before.any(dim=-1)
    watch = StepWatch(trial)
    moved: list[float] = []
    own: list[float] = []
    others: list[float] = []

    def on_step(step: int, **values: float) -> None:
        nonlocal before
        watch(step, **values)
        weights = trial.subject.student_weights()
        with trial.falsifier_fault():
            name = _name(trial)
            now = snapshot({name: weights[name]})[name]
            moved.append(float((now != before).any(dim=-1)[rows].double().mean()))
            before = now
            gradients = {key: weight.grad for key, weight in weights.items()}
            if all(gradient is None for gradient in gradients.values()):
                raise NotMeasured("this subject leaves no gradients on its weights for anybody to look at")
            own.append(_norm([gradients.pop(name)]))
            others.append(_norm(list(gradients.values())))

    with trial.subject_fault():
        trial.subject.distill(on_step=on_step)
    read_back(trial, watch)
    trial.measure(
        rows_moved=moved,
        gradient_norms=own,
        other_gradient_norms=others,
        growth=_growth(own),
        other_growth=_growth(others),
    )


def _name(trial: Trial[Distillation]) -> str:
    """The parameter of the student that the profile calls the embedding."""
    return str(trial.parameters["embedding"])


def _norm(gradients: list[Tensor | None]) -> float:
    """The Euclidean norm of several gradients together; one that is not there adds nothing."""
    return sum(float(gradient.double().square().sum()) for gradient in gradients if gradient is not None) ** 0.5


def _growth(norms: list[float]) -> float:
    """By which factor the last norm exceeds the first; NaN where there was no gradient at all."""
    return norms[-1] / norms[0] if norms and norms[0] > 0.0 else float("nan")
