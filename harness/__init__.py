"""Falsifier-driven verification of claims about GPU training and kernels.

This is the authoring surface, all that a falsifier or a subject imports:

    from harness import NotMeasured, Setting, Trial

    def falsify(trial: Trial[Sorter]) -> None:
        with trial.subject_fault():
            result = trial.subject.sort([3, 1, 2])
        trial.measure(first=result[0], items=len(result))
        trial.resolve(device="cpu")
"""

from harness.authoring.trial import NotMeasured, NotShown, Setting, Trial

__all__ = ["NotMeasured", "NotShown", "Setting", "Trial"]
