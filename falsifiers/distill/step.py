"""F-DISTILL-STEP-001: each step is the step that the configuration describes."""

from __future__ import annotations

from typing import Any

from falsifiers.distill.oracle.tolerances import TOLERANCES
from falsifiers.distill.oracle.watch import ShadowWatch
from falsifiers.distill.running.training import StepWatch, train
from falsifiers.distill.subject import Shadowed
from harness import Trial, elsewhere, not_shown
from harness.authoring.shadow_step import worst

__all__ = ["falsify"]

_EXACT = ("number", "count")


class _BothWatches(StepWatch):
    """Counts steps and looks at the weights, and has the shadow beside it."""

    def __init__(self, trial: Trial[Any]) -> None:
        """Compute the first step."""
        super().__init__(trial)
        self.shadow = ShadowWatch(trial.subject, trial.setting, own_work=trial.falsifier_fault)

    def __call__(self, step: int, **values: float) -> None:
        """Compare the step, after it is counted."""
        super().__call__(step, **values)
        self.shadow(step, **values)


@elsewhere(not_shown("weights, optimizer state and batch between two steps; a shadow step needs them"))
def falsify(trial: Trial[Shadowed]) -> None:
    """Train for the profile's steps, and compute the chosen ones a second time, independently."""
    training = train(trial, _BothWatches)
    shadow = training.watch.shadow
    found = worst(shadow.differences)
    known = {*TOLERANCES["float32"], *_EXACT} - {"gradient"}
    trial.measure(
        steps_executed=training.steps,
        steps_checked=shadow.checked,
        foreign_slots=sorted(found.keys() - known),
        worst_tensors=[f"{one.quantity} {one.tensor}".strip() for one in found.values() if one.ratio > 0.0],
        **{f"{quantity}_error": found[quantity].ratio for quantity in sorted(known & found.keys())},
    )
