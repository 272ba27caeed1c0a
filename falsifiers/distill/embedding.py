"""F-DISTILL-EMBED-001: every step moves the embedding, and no step's gradient is carried into the next."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from falsifiers.distill.measuring.weight_comparison import snapshot
from falsifiers.distill.running.training import StepWatch, read_back
from falsifiers.distill.subject import Distillation
from harness import NotMeasured, Trial, elsewhere, not_shown

__all__ = ["falsify"]

_MARK = 10_000.0
"""Multiple of a gradient's norm that is written into its first element after the step."""

_MARKED = 100.0
"""Multiple of the norm of the other elements. Only a mark makes the first element of a gradient this large."""

_LEAST_ELEMENTS = 16
"""Fewest elements of a gradient that is marked. In a smaller one, a single element may outweigh the others."""


@elsewhere(not_shown("the gradients that a step leaves on the weights are not seen from outside"))
def falsify(trial: Trial[Distillation]) -> None:
    """After each step, look at the embedding, and at the gradients that the step left on it and on the other weights.

    These gradients must not matter to the next step. We write a mark into them and look for it one step later.
    """
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
    rows_with_gradient: list[float] = []
    marks = _Marks()
    carried: list[int] = []

    def on_step(step: int, **values: float) -> None:
        nonlocal before
        watch(step, **values)
        weights = trial.subject.student_weights()
        with trial.falsifier_fault():
            name = _name(trial)
            now = snapshot({name: weights[name]})[name]
            moved.append(float((now != before).any(dim=-1)[rows].double().mean()))
            before = now
            gradients = {key: weight.grad for key, weight in weights.items() if weight.grad is not None}
            if not gradients:
                raise NotMeasured("this subject leaves no gradients on its weights after a step")
            has_gradient = gradients[name].any(dim=-1).cpu()[rows] if name in gradients else rows.new_zeros(1)
            rows_with_gradient.append(float(has_gradient.double().mean()))
            norms = {key: _norm(gradient) for key, gradient in gradients.items()}
            if marks.found(gradients, norms):
                carried.append(watch.steps)
            marks.write(gradients, norms)
            own.append(norms.pop(name, 0.0))
            others.append(sum(norm**2 for norm in norms.values()) ** 0.5)

    with trial.subject_fault():
        trial.subject.distill(on_step=on_step)
    read_back(trial, watch.steps)
    trial.measure(
        rows_moved=moved,
        rows_with_gradient=rows_with_gradient,
        carried=carried,
        gradient_norms=own,
        other_gradient_norms=others,
        growth=_growth(own),
        other_growth=_growth(others),
    )


def _name(trial: Trial[Distillation]) -> str:
    """The name of the student's embedding, as the profile says it."""
    return str(trial.parameters["embedding"])


def _norm(gradient: Tensor) -> float:
    """The Euclidean norm of a gradient without its first element, which may hold a mark."""
    return float(gradient.flatten()[1:].double().norm())


class _Marks:
    """Marks in the gradients that a step left. They are found after the next step if it carried these gradients on."""

    def __init__(self) -> None:
        """No gradient is marked yet."""
        self._marked: set[str] = set()

    def write(self, gradients: Mapping[str, Tensor], norms: Mapping[str, float]) -> None:
        """Write a value into the first element of each gradient that no gradient has there by itself."""
        self._marked = {key for key, one in gradients.items() if one.numel() >= _LEAST_ELEMENTS and norms[key] > 0.0}
        for key in self._marked:
            gradients[key][(0,) * gradients[key].dim()] = _MARK * norms[key]

    def found(self, gradients: Mapping[str, Tensor], norms: Mapping[str, float]) -> bool:
        """Whether a mark is still there, also if something was added to it or it was clipped."""
        return any(
            float(gradients[key].flatten()[0].abs()) > _MARKED * norms[key] for key in self._marked & gradients.keys()
        )


def _growth(norms: list[float]) -> float:
    """The factor by which the last norm exceeds the first; NaN if there was no gradient."""
    return norms[-1] / norms[0] if norms and norms[0] > 0.0 else float("nan")
