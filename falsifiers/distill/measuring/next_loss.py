"""The expected loss of a step, computed by the independent model before the subject makes the step."""

from collections.abc import Collection, Mapping
from typing import Any

from falsifiers.distill.oracle.answers import IndependentModel
from harness import NotObserved, Trial, Unobserved, propagates


class NextLoss:
    """Call it after each step of a subject.

    Attributes:
        expected: by step, counted from 1, the loss of its batch in nats per token. It is hidden if the subject does not
            show its batches and its teacher's weights, or if dropout changes the loss.
    """

    def __init__(self, trial: Trial[Any], steps: Collection[int], subject: Any = None) -> None:
        """Compute the loss of the first step, if it is among the steps. Call this inside `subject_fault`."""
        self._trial = trial
        self._subject = trial.subject if subject is None else subject
        self._steps = steps
        self._model: IndependentModel | None = None
        self._made = 0
        self.expected: dict[int, float]
        self.expected = _nothing_yet(self._subject, trial.parameters)
        self._compute()

    def __call__(self) -> None:
        """Compute the loss of the next step, if it is among the steps."""
        self._made += 1
        self._compute()

    def _compute(self) -> None:
        step = self._made + 1
        if step in self._steps and not isinstance(self.expected, Unobserved):
            loss = self._loss(step)
            self.expected = loss if isinstance(loss, Unobserved) else {**self.expected, step: loss}

    @propagates
    def _loss(self, step: int) -> float:
        inputs, labels = self._subject.batch(step)
        teacher, weights = self._subject.teacher_weights(), self._subject.student_weights()
        with self._trial.falsifier_fault():
            self._model = self._model or IndependentModel(self._trial.parameters, self._trial.device)
            loss = self._model.loss(weights, teacher, inputs, labels)
            if step >= max(self._steps):
                self._model = None  # the model is large
            return loss


@propagates
def _nothing_yet(subject: Any, parameters: Mapping[str, Any]) -> dict[int, float]:
    """No loss yet.

    Raises:
        NotObserved: no loss can ever be computed.
    """
    if parameters.get("dropout"):
        raise NotObserved("dropout has a part in the loss")
    if not (hasattr(subject, "batch") and hasattr(subject, "teacher_weights")):
        raise NotObserved("the subject does not show its batches and its teacher's weights")
    return {}
