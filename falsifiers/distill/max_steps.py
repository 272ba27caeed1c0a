"""F-DISTILL-MAXSTEPS-001: a run makes exactly the requested number of steps, and a request for none is an error."""

import contextlib
from dataclasses import dataclass

from falsifiers.distill.running.further_subjects import further_subject
from falsifiers.distill.running.training import Overrun, StepWatch, read_back
from falsifiers.distill.subject import Distillation
from harness import NotMeasured, Trial, propagates
from harness.tools.trainer.command_line import RequestRefused

_PATIENCE = 64  # steps beyond the request after which a run is stopped: two epochs of the historical trainer


def falsify(trial: Trial[Distillation]) -> None:
    """Request several numbers of steps, each from a new subject; the falsifier counts the steps itself."""
    requested = [trial.parameters["steps"], *trial.parameters["requests"]]
    first = _run(trial, trial.subject, requested[0])
    read_back(trial, first.watch.made)
    runs = [first, *(_run(trial, _asked(trial, request), request) for request in requested[1:])]
    trial.measure(
        requested=requested,
        executed=[run.executed for run in runs],
        surplus=[run.executed - limit for run, limit in zip(runs, requested, strict=True)],
        overstated=[run.reported - run.executed for run in runs],
        idle=[run.reports - run.changes for run in runs],
        accepted=_accepted(trial),
    )


@dataclass(frozen=True)
class _Watched:
    """One run.

    Attributes:
        executed: the steps, counted by the optimizer if it is shown; hidden if not every step was reported.
        reports: the number of reported steps; hidden as `executed` is.
        reported: the number of steps that the run claims.
    """

    watch: StepWatch
    executed: int
    reports: int
    reported: int

    @property
    def changes(self) -> int:
        """The number of checks at which the weights had changed."""
        return self.watch.changes


@propagates
def _asked(trial: Trial[Distillation], steps: int) -> Distillation:
    """A new subject with this number of steps."""
    with trial.subject_fault():
        return further_subject(trial, f"steps-{steps}", steps=steps)


@propagates
def _run(trial: Trial[Distillation], subject: Distillation, request: int) -> _Watched:
    """Watch one run until it ends, or until it has made far more steps than requested."""
    with trial.subject_fault():
        watch = StepWatch(trial, subject, most=2 * request + _PATIENCE)
        with contextlib.suppress(Overrun):
            run = subject.distill(on_step=watch)
            executed, reports = (run.if_every_step_is_reported(count) for count in (watch.made, watch.steps))
            return _Watched(watch, executed, reports, run.steps)
    return _Watched(watch, watch.made, watch.steps, watch.steps)


@propagates
def _accepted(trial: Trial[Distillation]) -> list[int]:
    """The invalid requests that the subject carries out instead of refusing them before the first step."""
    return [request for request in trial.parameters["refused"] if _accepts(trial, _asked(trial, request))]


@propagates
def _accepts(trial: Trial[Distillation], subject: Distillation) -> bool:
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
