"""F-DISTILL-MAXSTEPS-001: a run makes as many steps as were asked for, and asking for none is an error."""

from __future__ import annotations

import contextlib

from falsifiers.distill.another import another
from falsifiers.distill.subject import Distillation
from falsifiers.distill.watch import Overrun, StepWatch, read_back
from harness import Trial

__all__ = ["falsify"]

_PATIENCE = 64  # steps beyond the request after which a run is ended: two epochs of the historical trainer


def falsify(trial: Trial[Distillation]) -> None:
    """Ask for one number of steps after the other, each of a fresh subject; we, not the subject, count them."""
    watch, reported = _run(trial, trial.subject, trial.parameters["steps"])
    read_back(trial, watch)
    watches, reports = [watch], [reported]
    for request in trial.parameters["requests"]:
        watch, reported = _run(trial, _asked(trial, request), request)
        watches.append(watch)
        reports.append(reported)
    requested = [trial.parameters["steps"], *trial.parameters["requests"]]
    executed = [watch.steps for watch in watches]
    trial.measure(
        requested=requested,
        executed=executed,
        surplus=[steps - asked for steps, asked in zip(executed, requested, strict=True)],
        idle=[watch.steps - watch.changes for watch in watches],
        overstated=[reported - steps for reported, steps in zip(reports, executed, strict=True)],
        accepted=[request for request in trial.parameters["refused"] if _accepts(trial, request)],
    )


def _asked(trial: Trial[Distillation], steps: int) -> Distillation:
    """A fresh subject that was asked for so many steps."""
    with trial.subject_fault():
        return another(trial, f"steps-{steps}", steps=steps)


def _run(trial: Trial[Distillation], subject: Distillation, request: int) -> tuple[StepWatch, int]:
    """Watch one run; returns the watch, and the steps that the run says it made."""
    with trial.subject_fault():
        watch = StepWatch(trial, subject, most=2 * request + _PATIENCE)
        reported = watch.steps
        with contextlib.suppress(Overrun):
            reported = subject.distill(on_step=watch).steps
    return watch, reported


def _accepts(trial: Trial[Distillation], request: int) -> bool:
    """Whether a request that makes no sense is carried out in any manner, rather than refused before the first step."""
    subject = _asked(trial, request)
    with trial.subject_fault():
        watch = StepWatch(trial, subject, most=1)
        try:
            subject.distill(on_step=watch)
        except Overrun:
            return True
        except Exception:
            return watch.changes > 0
    return True
