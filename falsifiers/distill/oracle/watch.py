"""Watches a run with the shadow step: an `OnStep` that checks randomly chosen steps after they are made."""

import math
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from falsifiers.distill.oracle.qwen2 import NotTheModel
from falsifiers.distill.oracle.shadow import Configuration, ShadowStep, Snapshot, Step, compare
from falsifiers.distill.oracle.tolerances import refuted
from falsifiers.distill.subject import Shadowed
from harness import NotObserved, Setting
from harness.authoring.shadow_step import Difference, difference, relative_difference

_NEAR = 1 / 3  # share of a tolerance


def saved_steps(setting: Setting) -> range:
    """The steps after which a checkpoint is due, without the last step."""
    every = int(setting.parameters.get("checkpoint_every", 0))
    return range(every, int(setting.parameters["steps"]), every) if every else range(0)


@dataclass(frozen=True)
class _Prepared:
    """The subject's state and answers before a step."""

    before: Snapshot
    inputs: Tensor
    labels: Tensor
    logits: dict[str, Tensor]


class ShadowWatch:
    """Copies the state before each step, and compares a chosen step with the shadow step after the subject has made it.

    Every step requires the same copies, and the random choice follows the step, so a subject cannot know which steps
    are checked. The parameter `checked_share` is the probability of a check; 1 checks all steps.

    Dropout must be 0: the shadow cannot draw the subject's masks.

    Attributes:
        checked: the compared steps.
        found: all differences, by step; for each step also that of the reported learning rate, if any.
    """

    def __init__(
        self,
        subject: Shadowed,
        setting: Setting,
        own_work: Callable[[], AbstractContextManager[None]] = nullcontext,
        resumes_after: int = 0,
    ) -> None:
        """Copy the subject's state before the first step.

        Args:
            subject: is built, and has made no step.
            setting: the setting from which it was built.
            own_work: is entered around all work that is not the subject's, such as `Trial.falsifier_fault`.
            resumes_after: the step after which `go_on_with` will be called; 0 if it will not.

        Raises:
            NotTheModel: the subject's weights are not those of the model; later calls raise it too.
        """
        parameters = setting.parameters
        self._subject = subject
        self._own_work = own_work
        self._resumes_after = resumes_after
        with own_work():
            self._batch = (int(parameters["batch"]), int(parameters["sequence"]))
            self._shadow = ShadowStep(Configuration.of(parameters), torch.device(setting.device))
            saved = saved_steps(setting)
            around = {*saved[:1], *saved[-1:], *{resumes_after} - {0}, int(parameters["warmup_steps"])}
            self._last = int(parameters["steps"])
            self._always = {1, self._last, *(step + after for step in around for after in (0, 1))}
            self._share = float(parameters.get("checked_share", 1.0))
            self._chance = random.SystemRandom()
        teacher = self._teacher_of(subject)
        with own_work():
            # the teacher is frozen, so one copy serves all steps
            self._teacher = None if teacher is None else Snapshot.of(teacher).weights
        self.checked: list[int] = []
        self.by_step: dict[int, list[Difference]] = {}
        self._made = 0
        self._next: _Prepared | None = None
        self._first_resumed: _Prepared | None = None
        self._prepare()

    def _teacher_of(self, subject: Shadowed) -> Mapping[str, Tensor] | None:
        """The teacher's weights; None if there is no teacher and the loss does not need one."""
        try:
            return subject.teacher_weights()
        except NotObserved:
            if self._shadow.configuration.alpha != 1:
                raise
            return None

    def __call__(self, step: int, **values: float) -> None:
        """Compare the step if it is chosen, and copy the subject's state before the next one.

        Raises:
            NotTheModel: the weights are not those of the model.
        """
        self._made += 1
        if "learning_rate" in values:
            rate = self._shadow.configuration.rate(self._made)
            self._add([difference("rate", values["learning_rate"], rate)])
        if self._next is not None and self._is_chosen():
            weights, slots = self._subject.student_weights(), self._subject.optimizer_state()
            refused: NotTheModel | None = None
            with self._own_work():
                try:
                    self._add(self._compared(self._next, Snapshot(weights, slots), values.get("loss", math.nan), step))
                    self.checked.append(self._made)
                except NotTheModel as error:
                    refused = error
            if refused is not None:
                raise refused
        self._prepare()

    def _is_chosen(self) -> bool:
        return self._made in self._always or self._chance.random() < self._share

    def go_on_with(self, subject: Shadowed) -> None:
        """Check another subject from now on, which has resumed from the checkpoint of step `resumes_after`.

        Its first step is compared with the step from the first subject's state after that checkpoint.
        """
        self._subject, self._made, self._next = subject, self._resumes_after, self._first_resumed
        self._first_resumed = None  # for a large model, the prepared state takes many gigabytes

    @property
    def differences(self) -> list[Difference]:
        return [difference for of_step in self.by_step.values() for difference in of_step]

    def _add(self, differences: list[Difference]) -> None:
        self.by_step.setdefault(self._made, []).extend(differences)

    def _compared(self, prepared: _Prepared, after: Snapshot, loss: float, number: int) -> list[Difference]:
        """The differences of a step. The dtype's rounding is computed only if a difference is near its tolerance."""
        expected = self._shadow.step(
            self._made, prepared.before, prepared.inputs, prepared.labels, self._teacher or prepared.before.weights
        )
        shown = {name: weight.grad for name, weight in after.weights.items() if weight.grad is not None}

        def differences(rounded: Step | None) -> list[Difference]:
            return [
                *_logits(prepared, expected, rounded),
                *compare(
                    self._shadow.configuration,
                    expected,
                    prepared.before,
                    after,
                    loss=loss,
                    number=number,
                    gradients=shown,
                    rounded=rounded,
                ),
            ]

        dtype = next(iter(prepared.before.weights.values())).dtype
        all_differences = differences(None)
        if refuted(all_differences, str(dtype).removeprefix("torch."), _NEAR):
            all_differences = differences(
                self._shadow.step(
                    self._made,
                    prepared.before,
                    prepared.inputs,
                    prepared.labels,
                    self._teacher or prepared.before.weights,
                    dtype,
                )
            )
        return all_differences

    def _prepare(self) -> None:
        """Copy the state, the batch and the logits before the next step."""
        self._next = None
        number = self._made + 1
        if number > self._last:
            return
        weights, slots = self._subject.student_weights(), self._subject.optimizer_state()
        inputs, labels = self._subject.batch(number)
        has_shape = inputs.shape == labels.shape == self._batch
        self.by_step[number] = [Difference("batch", "", 0.0 if has_shape else 1.0)]
        if not has_shape:
            return
        logits = {"student_logits": self._subject.student_logits(inputs[:1])}
        if self._teacher is not None:
            logits["teacher_logits"] = self._subject.teacher_logits(inputs[:1])
        with self._own_work():
            self._next = _Prepared(Snapshot.of(weights, slots), inputs.clone(), labels.clone(), logits)
            if number == self._resumes_after + 1:
                self._first_resumed = self._next


def _logits(prepared: _Prepared, right: Step, rounded: Step | None) -> list[Difference]:
    """The differences of both models' logits for the batch's first row."""
    differences = []
    for name, seen in prepared.logits.items():
        expected = getattr(right, name)
        twin = rounded and getattr(rounded, name)
        differences.append(Difference(name, "", relative_difference(seen, expected, expected, rounded=twin)))
    return differences
