"""Watching a run with the shadow step: an `OnStep` that checks the chosen steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from falsifiers.distill.oracle.shadow import Configuration, ShadowStep, Snapshot, Step, compare
from falsifiers.distill.subject import Shadowed
from harness import Setting
from harness.authoring.shadow_step import Difference, chosen_steps, relative_difference

__all__ = ["ShadowWatch"]


class ShadowWatch:
    """Computes the chosen steps before the subject makes them, and compares afterwards.

    Attributes:
        checked: the steps that were compared.
        found: all differences, by step.
    """

    def __init__(self, subject: Shadowed, setting: Setting, drawn: int = 3) -> None:
        """Choose the steps, and compute the first one; the subject is built and has made no step."""
        wanted = setting.parameters
        self._subject = subject
        self._shadow = ShadowStep(Configuration.of(wanted), torch.device(setting.device))
        every = int(wanted.get("checkpoint_every", 0))
        saved = range(every, int(wanted["steps"]), every) if every else range(0)
        around = {*saved[:1], *saved[-1:], int(wanted["warmup_steps"])}
        self._chosen = chosen_steps(setting.seed, int(wanted["steps"]), around, drawn)
        self.checked: list[int] = []
        self.found: dict[int, list[Difference]] = {}
        self._made = 0
        self._next: tuple[Snapshot, Step] | None = None
        self._prepare()

    def __call__(self, step: int, **values: float) -> None:
        """Compare the step that was made, if it is a chosen one, and prepare the next."""
        self._made += 1
        if self._next is not None:
            before, expected = self._next
            self.found.setdefault(self._made, []).extend(
                compare(
                    self._shadow.configuration,
                    expected,
                    before,
                    self._snapshot(),
                    loss=values["loss"],
                    number=step,
                    rate=values.get("learning_rate"),
                )
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
        self._next = before, self._shadow.step(number, before, inputs, labels, teacher)
        self.found[number] = [
            self._answers("student_logits", before.weights, inputs),
            self._answers("teacher_logits", teacher, inputs),
        ]

    def _answers(self, quantity: str, weights: Mapping[str, torch.Tensor], inputs: torch.Tensor) -> Difference:
        """How far the subject's logits on one row are from those of the independent model with the same weights."""
        seen = getattr(self._subject, quantity)(inputs[:1])
        expected = self._shadow.logits(weights, inputs[:1])
        return Difference(quantity, "", relative_difference(seen, expected, expected))

    def _snapshot(self) -> Snapshot:
        return Snapshot.of(self._subject.student_weights(), self._subject.optimizer_state())
