"""Watching a run with the shadow step: an `OnStep` that checks the chosen steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from falsifiers.distill.oracle.qwen2 import NotTheModel
from falsifiers.distill.oracle.shadow import Configuration, ShadowStep, Snapshot, Step, compare
from falsifiers.distill.subject import Shadowed
from harness import Setting
from harness.authoring.shadow_step import Difference, chosen_steps, relative_difference

__all__ = ["ShadowWatch"]


class ShadowWatch:
    """Computes the chosen steps before the subject makes them, and compares afterwards.

    Dropout must be 0: the shadow cannot draw the subject's masks.

    Attributes:
        checked: the steps that were compared.
        found: all differences, by step.
    """

    def __init__(
        self,
        subject: Shadowed,
        setting: Setting,
        drawn: int = 3,
        own_work: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Choose the steps, and compute the first one.

        Args:
            subject: is built, and has made no step.
            setting: what it was built from.
            drawn: how many steps the seed draws beside those that are always checked.
            own_work: is entered around all work that is not the subject's, such as `Trial.falsifier_fault`.

        Raises:
            NotTheModel: the subject's weights are not those of the model; so do later steps.
        """
        wanted = setting.parameters
        self._subject = subject
        self._own_work = own_work
        with own_work():
            self._shadow = ShadowStep(Configuration.of(wanted), torch.device(setting.device))
            every = int(wanted.get("checkpoint_every", 0))
            saved = range(every, int(wanted["steps"]), every) if every else range(0)
            around = {*saved[:1], *saved[-1:], int(wanted["warmup_steps"])}
            self._chosen = chosen_steps(setting.seed, int(wanted["steps"]), around, drawn)
        self.checked: list[int] = []
        self.found: dict[int, list[Difference]] = {}
        self._made = 0
        self._next: tuple[Snapshot, Step, Step] | None = None
        self._prepare()

    def __call__(self, step: int, **values: float) -> None:
        """Compare the step that was made, if it is a chosen one, and prepare the next."""
        self._made += 1
        if self._next is not None:
            after = self._snapshot()
            with self._own_work():
                before, expected, rounded = self._next
                self.found[self._made] += compare(
                    self._shadow.configuration,
                    expected,
                    rounded,
                    before,
                    after,
                    loss=values["loss"],
                    number=step,
                    rate=values.get("learning_rate"),
                )
                self.checked.append(self._made)
        self._prepare()

    @property
    def differences(self) -> list[Difference]:
        """Those of all checked steps."""
        return [one for found in self.found.values() for one in found]

    def _prepare(self) -> None:
        """Copy the state and compute the next step, if it is a chosen one."""
        self._next = None
        number = self._made + 1
        if number not in self._chosen:
            return
        before, teacher = self._snapshot(), self._subject.teacher_weights()
        inputs, labels = self._subject.batch(number)
        student_logits, teacher_logits = (
            self._subject.student_logits(inputs[:1]),
            self._subject.teacher_logits(inputs[:1]),
        )
        refused: NotTheModel | None = None
        with self._own_work():
            try:
                self.found[number] = [
                    self._answers("student_logits", student_logits, before.weights, inputs[:1]),
                    self._answers("teacher_logits", teacher_logits, teacher, inputs[:1]),
                ]
                dtype = next(iter(before.weights.values())).dtype
                expected = self._shadow.step(number, before, inputs, labels, teacher)
                rounded = self._shadow.step(number, before, inputs, labels, teacher, dtype)
                self._next = before, expected, rounded
            except NotTheModel as error:
                refused = error
        if refused is not None:
            raise refused

    def _answers(self, quantity: str, seen: Tensor, weights: Mapping[str, Tensor], inputs: Tensor) -> Difference:
        """How far the subject's logits are from those of the independent model with the same weights."""
        expected = self._shadow.logits(weights, inputs)
        return Difference(quantity, "", relative_difference(seen, expected, expected))

    def _snapshot(self) -> Snapshot:
        return Snapshot.of(self._subject.student_weights(), self._subject.optimizer_state())
