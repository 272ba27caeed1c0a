"""Compares a loss with the formula; the claims share the cases and the procedure."""

from collections.abc import Mapping
from typing import Any, Protocol

from falsifiers.distill.kd.cases import HALF, cases, first_cases, question
from falsifiers.distill.kd.formulas import Truth, truth
from falsifiers.distill.kd.state import state_check
from falsifiers.distill.kd.subject import Answer, KdLoss, Question
from harness import Trial


class Measure(Protocol):
    """The measurements of a claim on one case."""

    def __call__(
        self, trial: Trial[KdLoss], case: Mapping[str, Any], question: Question, answer: Answer, right: Truth, /
    ) -> dict[str, float]:
        """Measurements by name; each is an item of a list that the contract bounds."""
        ...


def compare(trial: Trial[KdLoss], dtypes: tuple[str, ...], measure: Measure, *relations: str) -> None:
    """Record `measure` for as many cases of these dtypes as the contract asks for.

    Then check that the loss depends on its arguments alone, and the other relations.
    """
    devices: set[str] = set()
    state = state_check(trial, *relations)

    def check(case: Mapping[str, Any]) -> dict[str, float]:
        inputs = question(case, trial.device)
        right = truth(inputs)  # before the call, because a subject may overwrite its inputs
        tensors = (inputs.student, inputs.student_head, inputs.teacher, inputs.teacher_head, inputs.labels)
        with trial.subject_fault(), state.watched(*tensors):
            answer = trial.subject(inputs)
            devices.update(
                tensor.device.type for tensor in (answer.loss, answer.student_gradient, answer.head_gradient)
            )
        return measure(trial, case, inputs, answer, right)

    first = first_cases(dtypes)
    drawn = cases(trial.parameters, dtypes)
    tried = trial.search(drawn, check, examples=trial.parameters["cases"], first=first)
    trial.measure(cases=tried)
    state.measure(tried)
    trial.resolve(device="+".join(sorted(devices)))


def precision(case: Mapping[str, Any]) -> str:
    """The suffix of the measurements of a case: its dtype, or `half`."""
    return "half" if case["dtype"] in HALF else str(case["dtype"])
