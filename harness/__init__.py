"""Falsifier-driven verification of claims about GPU training and kernels.

This is the authoring surface, all that a falsifier or a subject imports:

    from harness import NotMeasured, Setting, Trial

    def falsify(trial: Trial[Sorter]) -> None:
        with trial.subject_fault():
            result = trial.subject.sort([3, 1, 2])
        trial.measure(first=result[0], items=len(result))
        trial.resolve(device="cpu")
"""

from harness.authoring.examine import elsewhere, not_shown
from harness.authoring.faults import NotMeasured, NotShown
from harness.authoring.hidden import Hidden, first_shown, look, provided
from harness.authoring.setting import Setting
from harness.authoring.trial import Trial

__all__ = [
    "Hidden",
    "NotMeasured",
    "NotShown",
    "Setting",
    "Trial",
    "elsewhere",
    "first_shown",
    "look",
    "not_shown",
    "provided",
]
