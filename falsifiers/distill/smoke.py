"""F-DISTILL-SMOKE-001: fifty distillation steps finish and the student learns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from torch import Tensor

from falsifiers.distill.held_out import HeldOut, evaluate, foresight
from falsifiers.distill.subject import Distillation
from falsifiers.distill.watch import StepWatch, read_back
from harness import Trial

__all__ = ["falsify"]

_TAIL = 5  # reported losses that are averaged at the end, where single batches scatter


def falsify(trial: Trial[Distillation]) -> None:
    """Train for the profile's steps; we, not the subject, count them and evaluate on held-out text before and after."""
    held_out = HeldOut.of(trial)
    if not trial.is_elsewhere:  # who trains elsewhere reads another text
        trial.measure(blind_cross_entropy=held_out.blind_cross_entropy, corpus_digest=held_out.digest)
    with trial.where_shown():
        before = evaluate(trial, held_out)
        trial.measure(
            initial_loss=before.loss,
            initial_kl=before.kl,
            initial_cross_entropy=before.cross_entropy,
            blind_kl=before.blind_kl,
            teacher_cross_entropy=before.teacher_cross_entropy,
        )
    teacher: list[Tensor] = []
    with trial.where_shown(), trial.subject_fault():
        teacher.append(trial.subject.teacher_logits(held_out.first_sequence))
    with trial.subject_fault():
        watch = StepWatch(trial)
        run = trial.subject.distill(on_step=watch)
    with trial.where_shown(), trial.subject_fault():
        teacher.append(trial.subject.teacher_logits(held_out.first_sequence))
    if len(teacher) == 2:
        trial.measure(teacher_drift=(teacher[1] - teacher[0]).abs().max())
    read_back(trial, watch)
    with trial.where_shown():
        trial.measure(
            steps_reported=run.told().steps,
        )
        if not run.losses:
            run.seen()
        trial.measure(reported_initial_loss=_mean(run.losses[:1]), reported_final_loss=_mean(run.losses[-_TAIL:]))
    with trial.where_shown():
        trial.measure(steps_executed=watch.steps, reported_losses=run.seen().losses)
    with trial.where_shown():
        trial.measure(weight_changes=watch.changes, unmoved=watch.unmoved)
    with trial.where_shown():
        after = evaluate(trial, held_out)
        trial.measure(
            final_loss=after.loss,
            final_kl=after.kl,
            final_misplaced_kl=after.misplaced_kl,
            final_foresight=foresight(trial, held_out.first_sequence),
            final_cross_entropy=after.cross_entropy,
        )


def _mean(losses: Sequence[float]) -> float:
    """The mean, or NaN of nothing: a run that reports no loss fails, it does not go unmeasured."""
    return fmean(losses) if losses else math.nan
