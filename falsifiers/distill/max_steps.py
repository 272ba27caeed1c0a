"""F-DISTILL-MAXSTEPS-001: a run makes as many steps as were asked for, and asking for none is an error."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from falsifiers.distill.another import another
from falsifiers.distill.subject import Distillation
from falsifiers.distill.watch import Overrun, StepWatch, read_back
from harness import NotMeasured, NotShown, Trial
from harness.external.command import RequestRefused

__all__ = ["falsify"]

_PATIENCE = 64  # steps beyond the request after which a run is ended: two epochs of the historical trainer


def falsify(trial: Trial[Distillation]) -> None:
    """Ask for one number of steps after the other, each of a fresh subject; we, not the subject, count them."""
    requested = [trial.parameters["steps"], *trial.parameters["requests"]]
    runs = [_run(trial, trial.subject, requested[0])]
    read_back(trial, runs[0].watch)
    with trial.where_shown():
        for request in requested[1:]:
            runs.append(_run(trial, _asked(trial, request), request))
        executed = [run.executed for run in runs]
        trial.measure(
            requested=requested,
            executed=executed,
            surplus=[steps - asked for steps, asked in zip(executed, requested, strict=True)],
            overstated=[run.reported - run.executed for run in runs],
        )
        trial.measure(idle=[run.executed - run.watch.changes for run in runs])
    with trial.where_shown():
        trial.measure(
            accepted=[request for request in trial.parameters["refused"] if _accepts(trial, request)],
        )


@dataclass(frozen=True)
class _Watched:
    """One run: the watch, the steps that the run says it made, and why not all of them were seen."""

    watch: StepWatch
    reported: int
    unseen: str = ""

    @property
    def executed(self) -> int:
        """The steps as counted; NotShown where some were not seen."""
        if self.unseen:
            raise NotShown(self.unseen)
        return self.watch.steps


def _asked(trial: Trial[Distillation], steps: int) -> Distillation:
    """A fresh subject that was asked for so many steps."""
    with trial.subject_fault():
        return another(trial, f"steps-{steps}", steps=steps)


def _run(trial: Trial[Distillation], subject: Distillation, request: int) -> _Watched:
    """Watch one run to its end, or for as long as anybody would."""
    with trial.subject_fault():
        watch = StepWatch(trial, subject, most=2 * request + _PATIENCE)
        with contextlib.suppress(Overrun):
            run = subject.distill(on_step=watch)
            return _Watched(watch, run.steps, run.unseen)
    return _Watched(watch, watch.steps)


def _accepts(trial: Trial[Distillation], request: int) -> bool:
    """Whether a request that makes no sense is carried out in any manner, rather than refused before the first step."""
    subject = _asked(trial, request)
    with trial.subject_fault():
        watch = StepWatch(trial, subject, most=1)
        try:
            subject.distill(on_step=watch)
        except Overrun:
            return True
        except RequestRefused:
            return False
        except NotMeasured:
            raise
        except Exception:
            return watch.steps > 0 or watch.changes > 0
    return True
